"""Create and delete ACLs, set and delete the SCRAM credentials of users."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from ottla.client.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import NoError

from ...access.permissions import Permission
from ..acting import Action, Asking, Outcome, Preview
from ..forms import FormError

Kind = TypeVar("Kind", bound=IntEnum)
NOT_TO_CHOOSE = {"UNKNOWN", "ANY", "MATCH"}  # of filters, and of what this client does not know
NAME_CHARACTERS_MAX = 249
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
EVERYBODY = "User:*"


def choices(kind: type[IntEnum]) -> list[str]:
    return [each.name for each in kind if each.name not in NOT_TO_CHOOSE]


def chosen(asking: Asking, field: str, kind: type[Kind]) -> Kind:
    name = asking.fields.one(field).upper().replace("-", "_")
    if name not in choices(kind):
        raise FormError(f"{field}: one of {', '.join(choices(kind))} (got {name[:40]!r})")
    return kind[name]


def text_of(asking: Asking, field: str) -> str:
    text = asking.fields.one(field)
    if not text or len(text) > NAME_CHARACTERS_MAX:
        raise FormError(f"{field}: from 1 to {NAME_CHARACTERS_MAX} characters (got {len(text)})")
    return text


def sentence(acl: ACL) -> str:
    """Who may or may not do what."""
    pattern = acl.resource_pattern
    who = "everybody" if acl.principal == EVERYBODY else acl.principal
    may = "may" if acl.permission_type is ACLPermissionType.ALLOW else "may not"
    kind = pattern.resource_type.name.lower().replace("_", " ")
    name = f"{kind} {pattern.resource_name}"
    if pattern.pattern_type is ACLResourcePatternType.PREFIXED:
        name = f"each {kind} whose name begins with {pattern.resource_name}"
    elif pattern.resource_name == "*":
        name = f"each {kind}"
    where = "" if acl.host == "*" else f", from {acl.host}"
    return f"{who} {may} {acl.operation.name} on {name}{where}"


class OfSecurity(Action):
    tab = "acls"

    def authorize(self, asking: Asking) -> None:
        asking.require(Permission.CHANGE)

    def back(self, asking: Asking) -> str:
        return f"{asking.base}/security?tab={self.tab}"


class OfAcl(OfSecurity):
    def acl(self, asking: Asking) -> ACL:
        principal, host = text_of(asking, "principal"), asking.fields.one("host") or "*"
        if not principal.partition(":")[2]:
            raise FormError(f"principal: such as User:alice (got {principal!r})")
        if len(host) > NAME_CHARACTERS_MAX:
            raise FormError(f"host: at most {NAME_CHARACTERS_MAX} characters")
        return ACL(
            principal,
            host,
            chosen(asking, "operation", ACLOperation),
            chosen(asking, "permission", ACLPermissionType),
            ResourcePattern(
                chosen(asking, "type", ResourceType),
                text_of(asking, "name"),
                chosen(asking, "pattern", ACLResourcePatternType),
            ),
        )

    def fields(self, acl: ACL) -> dict[str, object]:
        pattern = acl.resource_pattern
        return {
            "principal": acl.principal, "host": acl.host, "operation": acl.operation.name,
            "permission": acl.permission_type.name, "type": pattern.resource_type.name,
            "name": pattern.resource_name, "pattern": pattern.pattern_type.name,
        }  # fmt: skip

    def target(self, asking: Asking) -> str:
        try:
            return sentence(self.acl(asking))
        except FormError:
            return asking.fields.one("principal")

    def rows(self, acl: ACL) -> list[tuple[str, object]]:
        return list(self.fields(acl).items())


class CreateAcl(OfAcl):
    name = "create-acl"
    template = "create_acl.html"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        return {
            "operations": choices(ACLOperation),
            "permissions": [*reversed(choices(ACLPermissionType))],
            "types": choices(ResourceType),
            "patterns": choices(ACLResourcePatternType),
        }

    def plan(self, asking: Asking) -> Preview:
        acl = self.acl(asking)
        warnings = []
        if acl.permission_type is ACLPermissionType.DENY:
            warnings.append("A denial holds whatever else allows it.")
        if acl.principal == EVERYBODY and acl.permission_type is ACLPermissionType.ALLOW:
            warnings.append("Everybody who reaches the cluster may do this then.")
        return Preview(
            "Create an ACL",
            "Create",
            [f"{sentence(acl)}."],
            warnings,
            ("Of the ACL", "Value"),
            self.rows(acl),
            self.fields(acl),
        )

    def do(self, asking: Asking) -> Outcome:
        acl = self.acl(asking)
        failed = asking.admin.create_acls([acl])["failed"]
        if failed:
            raise failed[0]
        return Outcome(f"The ACL is there: {sentence(acl)}.", detail=sentence(acl))


class DeleteAcl(OfAcl):
    name = "delete-acl"

    def word(self, asking: Asking) -> str:
        return asking.fields.one("principal")

    def plan(self, asking: Asking) -> Preview:
        acl = self.acl(asking)
        return Preview(
            "Delete an ACL",
            "Delete",
            [f"It is no longer said that {sentence(acl)}."],
            ["Where no other ACL is of the resource, the cluster may let nobody or everybody in."],
            ("Of the ACL", "Value"),
            self.rows(acl),
            self.fields(acl),
            self.word(asking),
        )

    def do(self, asking: Asking) -> Outcome:
        acl = self.acl(asking)
        pattern = acl.resource_pattern
        exactly = ACLFilter(
            acl.principal, acl.host, acl.operation, acl.permission_type,
            ResourcePatternFilter(
                pattern.resource_type, pattern.resource_name, pattern.pattern_type
            ),
        )  # fmt: skip
        [(_, gone, error)] = asking.admin.delete_acls([exactly])
        if error is not NoError:
            assert isinstance(error, Exception)
            raise error
        if not gone:
            raise FormError("There is no such ACL any more.")
        return Outcome("The ACL was deleted.", detail=sentence(acl))


class OfUser(OfSecurity):
    tab = "users"

    def target(self, asking: Asking) -> str:
        return asking.fields.one("user")

    def mechanism(self, asking: Asking) -> str:
        mechanism = asking.fields.one("mechanism", MECHANISMS[0])
        if mechanism not in MECHANISMS:
            raise FormError(f"mechanism: one of {', '.join(MECHANISMS)} (got {mechanism[:40]!r})")
        return mechanism

    def sent(self, asking: Asking) -> dict[str, object]:
        return {"user": text_of(asking, "user"), "mechanism": self.mechanism(asking)}

    def alter(
        self, asking: Asking, change: UserScramCredentialUpsertion | UserScramCredentialDeletion
    ) -> None:
        problem = asking.admin.alter_user_scram_credentials([change]).get(change.user)
        if problem is not None:
            raise FormError(problem)


class SetScramUser(OfUser):
    """The password is asked for with the confirmation, so that no page ever shows it."""

    name = "set-scram-user"
    template = "scram_user.html"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        return {"mechanisms": MECHANISMS}

    def plan(self, asking: Asking) -> Preview:
        sent = self.sent(asking)
        return Preview(
            f"Set the password of {sent['user']}",
            "Set the password",
            [f"{sent['user']} may log in by {sent['mechanism']} with the password given below.",
             "One that it had by this mechanism ends."],
            ["It is salted and hashed here; the cluster never has the password itself."],
            ("Of the user", "Value"),
            [("user", sent["user"]), ("mechanism", sent["mechanism"])],
            sent,
            secret="password",
        )  # fmt: skip

    def do(self, asking: Asking) -> Outcome:
        sent = self.sent(asking)
        password = (asking.fields.get("password") or [""])[0]  # with its spaces
        if not password:
            raise FormError("password: it must be given")
        user, mechanism = str(sent["user"]), str(sent["mechanism"])
        self.alter(
            asking,
            UserScramCredentialUpsertion(user, mechanism, password),
        )
        return Outcome(f"{user} may log in by {mechanism}.", detail=mechanism)


class DeleteScramUser(OfUser):
    name = "delete-scram-user"

    def word(self, asking: Asking) -> str:
        return asking.fields.one("user")

    def plan(self, asking: Asking) -> Preview:
        sent = self.sent(asking)
        return Preview(
            f"Delete the credential of {sent['user']}",
            "Delete",
            [f"{sent['user']} may not log in by {sent['mechanism']} any more.",
             "Connections that are open stay open."],
            [],
            ("Of the user", "Value"),
            [("user", sent["user"]), ("mechanism", sent["mechanism"])],
            sent,
            self.word(asking),
        )  # fmt: skip

    def do(self, asking: Asking) -> Outcome:
        sent = self.sent(asking)
        user, mechanism = str(sent["user"]), str(sent["mechanism"])
        self.alter(asking, UserScramCredentialDeletion(user, mechanism))
        return Outcome(f"{user} may not log in by {mechanism} any more.", detail=mechanism)


ACTIONS: tuple[Action, ...] = (CreateAcl(), DeleteAcl(), SetScramUser(), DeleteScramUser())
