"""The options of Kafka's StandardAuthorizer: who decides, who may do everything, and without ACLs.

Two of them are the authorizer's own, not the broker's, so DescribeConfigs shows them only if set.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.settings.properties import Entry

CLASS = "authorizer.class.name"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
WITHOUT_ACLS = "allow.everyone.if.no.acl.found"
OWN_NAMES = (SUPER_USERS, WITHOUT_ACLS)


class Authorization(NamedTuple):
    """How requests are authorized."""

    super_users: frozenset[str] = frozenset()  # as `User:admin`
    allow_if_no_acl: bool = False


def authorization_of(name: str, given: Mapping[str, Entry]) -> Authorization | None:
    """From the authorizer's name, and what was set at the start; None: there is no authorizer."""
    if not name:
        return None
    users = given[SUPER_USERS].value if SUPER_USERS in given else ""
    allow = given[WITHOUT_ACLS].value if WITHOUT_ACLS in given else ""
    # Between semicolons, because a name may have commas.
    return Authorization(
        frozenset(each.strip() for each in users.split(";") if each.strip()),
        allow.strip().lower() == "true",
    )


def not_principals(given: Mapping[str, Entry]) -> list[str]:
    """Of `super.users`, what names no kind of principal."""
    users = given[SUPER_USERS].value if SUPER_USERS in given else ""
    named = (each.strip() for each in users.split(";") if each.strip())
    return sorted(each for each in named if not all(each.partition(":")[:2]))
