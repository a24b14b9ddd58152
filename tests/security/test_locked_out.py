"""Nobody gets in any more, not even the operator: the way back that `docs/security.md` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.errors import SaslAuthenticationFailedError
from ottla.supervisor.ports import free_port

from .clusters import STANDARD
from .harness import PLAIN, SaslServer

MECHANISM = "SCRAM-SHA-256"
CLUSTER = (ResourceType.CLUSTER, "kafka-cluster", ACLResourcePatternType.LITERAL)
DENIED = (ACLOperation.ALL, ACLPermissionType.DENY)


class Locked(SaslServer):
    """Its options may name all its listeners."""

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :] if "listeners" in self.options else command


def test_the_way_back(tmp_path: Path) -> None:
    """The last credential is deleted, and an ACL denies everything to everybody. With one more
    listener on loopback, whose anonymous user is a super user for as long, both are mended; what
    was there before is there after."""
    settings = {
        "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin;User:first",
    }
    server = Locked(tmp_path, {"first": "of the beginning"}, settings=settings)
    login = server.client("admin", "operator's", MECHANISM)
    made = [UserScramCredentialUpsertion("admin", MECHANISM, "operator's")]
    with server, Admin(**server.client("first", "of the beginning")) as first:
        assert first.alter_user_scram_credentials(made) == {"admin": None}
        with Admin(**login) as admin:
            admin.create_topics(["kept"])
            gone = [UserScramCredentialDeletion("admin", MECHANISM)]
            assert admin.alter_user_scram_credentials(gone) == {"admin": None}
        first.create_acls([ACL("User:*", "*", *DENIED, ResourcePattern(*CLUSTER))])
        with pytest.raises(SaslAuthenticationFailedError):
            Admin(**login)

    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    usual = server.options | {
        "super.users": "User:admin",
        jaas: f'{PLAIN} required username="admin" password="admin-secret";',  # and nobody else
    }
    port = free_port()
    server.options = usual | {
        "listeners": f"SASL_PLAINTEXT://{server.bootstrap},RESCUE://127.0.0.1:{port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,RESCUE:PLAINTEXT",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with server, Admin(bootstrap_servers=f"127.0.0.1:{port}") as rescuer:
        assert rescuer.alter_user_scram_credentials(made) == {"admin": None}
        rescuer.delete_acls([ACLFilter("User:*", "*", *DENIED, ResourcePatternFilter(*CLUSTER))])
    server.options = usual
    any_acl = ACLFilter(
        None, None, ACLOperation.ANY, ACLPermissionType.ANY, ResourcePatternFilter(*CLUSTER)
    )
    with server, Admin(**login) as admin:
        assert admin.list_topics() == ["kept"]
        assert admin.describe_acls(any_acl)[0] == []
