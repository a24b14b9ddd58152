"""SCRAM credentials (KIP-554), request by request, and their nodes in the tree."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.client_nodes import read_value
from ottla.cluster.nodes import CorruptNode
from ottla.security.credentials import Credential, credential_text, credentials_of, users_in
from ottla.security.sasl.scram import credential
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla.wire.errors import ErrorCode

from .harness import BrokerHarness

SHA_256, SHA_512 = 1, 2
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "


def upsertion(
    name: str, mechanism: int = SHA_512, iterations: int = 4096
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=b"salted password",
    )


def alter(
    harness: BrokerHarness,
    upsertions: list[ScramCredentialUpsertion],
    deletions: list[tuple[str, int]] | None = None,
) -> dict[str, tuple[int, str | None]]:
    gone = [ScramCredentialDeletion(name=name, mechanism=each) for name, each in deletions or []]
    request = AlterUserScramCredentialsRequest(deletions=gone, upsertions=upsertions)
    response: Any = harness.ask(request, 0)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def quota(harness: BrokerHarness, user: str, value: float | None) -> None:
    operation = OpData(key="producer_byte_rate", value=value or 0.0, remove=value is None)
    entity = [EntityData(entity_type="user", entity_name=user)]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[operation])])
    response: Any = harness.ask(request, 1)
    assert [each.error_code for each in response.entries] == [0]


def described(harness: BrokerHarness, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] if names else None
    response: Any = harness.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert (response.error_code, response.error_message) == (0, "")
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        if not each.error_code
        else (each.error_code, each.error_message)
        for each in response.results
    }


def test_credentials_are_set_described_and_deleted() -> None:
    """One user at a time may have both mechanisms; a second setting replaces the first."""
    with BrokerHarness() as harness:
        assert alter(harness, [upsertion("alice"), upsertion("bob", SHA_256, 8192)]) == {
            "alice": (0, None),
            "bob": (0, None),
        }
        assert alter(harness, [upsertion("alice", SHA_256)]) == {"alice": (0, None)}
        assert alter(harness, [upsertion("bob", SHA_256, 5000)]) == {"bob": (0, None)}
        assert described(harness) == {
            "alice": [(SHA_256, 4096), (SHA_512, 4096)],
            "bob": [(SHA_256, 5000)],
        }
        gone = [("alice", SHA_512), ("bob", SHA_256)]
        assert alter(harness, [], gone) == {"alice": (0, None), "bob": (0, None)}
        assert described(harness) == {"alice": [(SHA_256, 4096)]}


def test_what_kafka_refuses() -> None:
    """Each by its code and sentence, and the other users of the request get what they want."""
    with BrokerHarness() as harness:
        alter(harness, [upsertion("there")])
        assert alter(
            harness,
            [
                upsertion("few", iterations=4095),
                upsertion("many", iterations=16_385),
                upsertion("most", iterations=16_384),
                upsertion(""),
                upsertion("unknown", mechanism=3),
                upsertion("twice", SHA_256),
                upsertion("twice", SHA_512),
                upsertion("both"),
            ],
            [("missing", SHA_512), ("there", SHA_512), ("there", SHA_256), ("both", SHA_256)],
        ) == {
            "most": (0, None),
            "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
            "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
            "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
            "unknown": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
            "twice": (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            ),
            "there": (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            ),
            "missing": (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            ),
            "both": (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            ),
        }
        assert described(harness, "nobody", "there", "most", "most") == {
            "nobody": (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to describe a user credential that does not exist: nobody",
            ),
            "there": [(SHA_512, 4096)],
            "most": (
                ErrorCode.DUPLICATE_RESOURCE,
                f"{TWICE}most",
            ),
        }


def test_credentials_outlive_the_broker() -> None:
    """They are in its tree, and so is the secret that salts of unknown users come from."""
    with BrokerHarness() as first:
        alter(first, [upsertion("Ä/b ~*"), upsertion(".."), upsertion("<default>")])
        before = first.broker.image
        disk = first.disk
    with BrokerHarness(disk=disk) as second:
        assert second.broker.image.entity_configs == before.entity_configs
        assert len(before.entity_configs) == 3
        assert second.broker.image.scram_secret == before.scram_secret
        assert len(before.scram_secret) == 32


def test_quotas_of_a_user_stay() -> None:
    """They are configs of the same node: neither API touches what is the other's, or shows it."""
    with BrokerHarness() as harness:
        alter(harness, [upsertion("alice")])
        quota(harness, "alice", 1024.0)
        alter(harness, [upsertion("alice", SHA_256)], [])
        assert described(harness) == {"alice": [(SHA_256, 4096), (SHA_512, 4096)]}
        response: Any = harness.ask(DescribeClientQuotasRequest(components=[]), 1)
        [entry] = response.entries
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1024)]
        alter(harness, [], [("alice", SHA_512)])
        alter(harness, [], [("alice", SHA_256)])
        [configs] = harness.broker.image.entity_configs.values()
        assert configs == {"producer_byte_rate": "1024"}
        quota(harness, "alice", None)
        assert harness.broker.image.entity_configs == {}


@pytest.mark.parametrize("data", [b"secret", b'{"version": 1, "config": ["secret"]}'])
def test_a_broken_node_does_not_show_what_it_holds(data: bytes) -> None:
    """The path says where to look."""
    with pytest.raises(CorruptNode, match=r"/config/users/alice") as caught:
        read_value("/config/users/alice", data)
    assert "secret" not in str(caught.value)


def test_a_credential_that_cannot_be_read_is_none() -> None:
    """Written by hand: nobody gets in by it, and nothing else suffers."""
    kept = credential("SCRAM-SHA-512", "secret", b"salt", 4096)
    configs = {"SCRAM-SHA-256": "salt=?", "SCRAM-SHA-512": credential_text(kept)}
    users = {(("user", "alice"),): configs, (("user", None),): configs}
    assert credentials_of(users, "alice") == {"SCRAM-SHA-512": kept}
    assert list(users_in(users)) == ["alice"]


def test_a_credential_does_not_show_itself() -> None:
    """Wherever it is printed, also within what holds it."""
    kept = Credential(b"the salt", b"the stored key", b"the server key", 4096)
    assert "stored" not in f"{kept} {kept!r} {[kept]} { {'alice': kept} }"
