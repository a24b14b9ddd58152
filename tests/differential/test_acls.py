"""What users may do, and what others are answered: as Apache Kafka's StandardAuthorizer has it.

One Apache Kafka and one Ottla, with a user for each case and each right that it lacks. Both are
asked the same, in every version, and both must answer and log the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.broker.dispatch import HANDLERS
from ottla.wire.apis import EVERY_API
from tests import needs
from tests.differential import acl_group_cases, acl_share_cases, acl_token_cases, acl_topic_cases
from tests.differential.acl_brokers import (
    ADMIN,
    SecuredKafka,
    UserPeer,
    prepare,
    secured_ottla,
)
from tests.differential.acl_case import ALL, AclCase
from tests.differential.normal import differences
from tests.differential.test_differential import KAFKA_OPTIONS, LINES_MAX, OPTIONS

CASES = (acl_topic_cases, acl_group_cases, acl_share_cases, acl_token_cases)
pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("acls")]

# Only these are asked before a login, or belong to it.
LOGIN = {"SaslHandshake", "SaslAuthenticate"}
# Kafka shows a dump of the request's object.
OTHER_WORDS = re.compile(r"Request Request\(.*\) needs [A-Z_]+ permission\.", re.DOTALL)
EPOCHS = {"group_epoch", "assignment_epoch", "member_epoch"}
NOT_COMPARED: dict[str, set[str]] = {
    # They depend on how soon Kafka has seen that the group's state is initialized, and assigns.
    "ShareGroupHeartbeat": EPOCHS | {"assignment"},
    "ShareGroupDescribe": EPOCHS,
    # Kafka gives the id of a topic that may not be read: so it can be seen whether there is one.
    "AlterShareGroupOffsets": {"topic_id"},
}


class Side(NamedTuple):
    """One of the two brokers."""

    port: int
    admin: UserPeer
    topic_ids: dict[str, bytes]


class Sides(NamedTuple):
    kafka: Side
    ottla: Side


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    needs.apache()
    folder = tmp_path_factory.mktemp("acls")
    users = {user: rights for case in ALL for user, rights in case.users().items()}
    topics = [f"{user}-{stem}" for case in ALL for user in case.users() for stem in case.topics]
    acls = [right.acl(user) for user, rights in users.items() for right in rights]
    names = [ADMIN, *users]
    with (
        SecuredKafka(folder / "kafka", names, **KAFKA_OPTIONS) as kafka,
        secured_ottla(folder / "ottla", names, OPTIONS) as ottla,
    ):
        found = []
        for port in (kafka.sasl_port, ottla.port):
            admin = UserPeer(port, ADMIN)
            found.append(Side(port, admin, prepare(admin, topics, acls)))
        yield Sides(*found)


def steps_of(side: Side, case: AclCase, user: str) -> list[Any]:
    with UserPeer(side.port, user, side.admin) as peer:
        peer.names.topic_ids.update(
            {
                topic_id: name
                for stem in case.topics
                for name, topic_id in [(f"{user}-{stem}", side.topic_ids[f"{user}-{stem}"])]
            }
        )
        for version in case.versions():
            case.body(peer, version)
        return peer.steps


def in_any_order(value: Any, left_out: set[str]) -> Any:
    """What is denied comes first or last in Kafka, or where a hash map has it."""
    if isinstance(value, dict):
        return {
            key: in_any_order(item, left_out) for key, item in value.items() if key not in left_out
        }
    if isinstance(value, str) and OTHER_WORDS.fullmatch(value):
        return "Cluster authorization failed."
    if isinstance(value, list):
        return sorted((in_any_order(item, left_out) for item in value), key=repr)
    return value


@pytest.mark.parametrize("case", [pytest.param(each, id=each.id) for each in ALL])
def test_same_answers(sides: Sides, case: AclCase) -> None:
    """For a user with no rights, with those that are needed, and without each of them."""
    lines = []
    left_out = NOT_COMPARED.get(case.api, set())
    for user in case.users():
        expected, found = (steps_of(side, case, user) for side in sides)
        assert len(expected) == len(found)
        for left, right in zip(expected, found, strict=True):
            theirs = in_any_order(left.answer, left_out)
            ours = in_any_order(right.answer, left_out)
            variant = user.rpartition("_")[2]
            lines += [f"{variant}: {left.label}: {line}" for line in differences(theirs, ours)]
    if lines:
        pytest.fail("\n".join(lines[:LINES_MAX]), pytrace=False)


@pytest.mark.long
def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    """Of two brokers that have none: the same answers to who may ask, in every version."""
    needs.apache()
    found = []
    with (
        SecuredKafka(tmp_path / "kafka", [ADMIN], token_key="", **KAFKA_OPTIONS) as kafka,
        secured_ottla(
            tmp_path / "ottla", [ADMIN], {**OPTIONS, "delegation.token.secret.key": ""}
        ) as ottla,
    ):
        for port in (kafka.sasl_port, ottla.port):
            with UserPeer(port, ADMIN) as peer:
                acl_token_cases.without_a_key(peer)
                found.append([each.answer for each in peer.steps])
    assert found[0] == found[1]


def test_each_api_has_a_case() -> None:
    """All that a client can ask."""
    served = {EVERY_API[key].name for key in HANDLERS} - LOGIN
    assert served - {each.api for each in ALL} == set()
