"""What a case about ACLs is: rights that are needed, and what is asked in each version.

A case is run for a user without rights, for one with exactly those that it needs, and for one
without each of them. Topics are `<user>-t` and so on; groups and transactional ids begin so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.apache import messages
from tests.apache.messages import Fields
from tests.differential.acl_brokers import (
    CLUSTER,
    GROUP,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    Right,
    UserPeer,
)

Body = Callable[[UserPeer, int], None]


class AclCase(NamedTuple):
    """One scenario, the rights that it needs, and the topics that have to be there."""

    api: str
    name: str
    rights: tuple[Right, ...]
    topics: tuple[str, ...]
    body: Body

    @property
    def id(self) -> str:
        return f"{self.api}_{self.name}"

    def users(self) -> dict[str, tuple[Right, ...]]:
        """With their rights."""
        found: dict[str, tuple[Right, ...]] = {"none": ()}
        if self.rights:
            found["all"] = self.rights
        if len(self.rights) > 1:
            for missing in range(len(self.rights)):
                left = self.rights[:missing] + self.rights[missing + 1 :]
                found[f"without{missing}"] = left
        return {f"{self.id}_{name}": rights for name, rights in found.items()}

    def versions(self) -> range:
        return messages.versions(self.api)


ALL: list[AclCase] = []


def case(api: str, *rights: Right, topics: str = "tu") -> Callable[[Body], Body]:
    """Register a function that is called for every version of the API."""

    def register(body: Body) -> Body:
        ALL.append(AclCase(api, body.__name__, rights, tuple(topics), body))
        return body

    return register


def on_topic(operation: int, stem: str = "t") -> Right:
    return Right(TOPIC, operation, stem)


def on_topics(operation: int, stem: str) -> Right:
    return Right(TOPIC, operation, stem, PREFIXED)


def on_group(operation: int, stem: str = "g", pattern: int = PREFIXED) -> Right:
    return Right(GROUP, operation, stem, pattern)


def on_id(operation: int, stem: str = "x") -> Right:
    return Right(TRANSACTIONAL_ID, operation, stem, PREFIXED)


def on_cluster(operation: int) -> Right:
    return Right(CLUSTER, operation)


T, U = "t", "u"
ABSENT = "absent"  # a topic that there is not
UNKNOWN_ID = b"\x07" * 16


def topic_id(peer: UserPeer, stem: str) -> bytes:
    return UNKNOWN_ID if stem == ABSENT else peer.topic_id(peer.name(stem))


def ids(peer: UserPeer, *stems: str) -> list[bytes]:
    return [topic_id(peer, stem) for stem in stems]


def committed(peer: UserPeer, group: str, *stems: str) -> Fields:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topics = [
        {
            "name": peer.name(stem),
            "topic_id": topic_id(peer, stem),
            "partitions": partitions,
        }
        for stem in stems
    ]
    return {
        "group_id": peer.name(group),
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topics,
    }


def commit(peer: UserPeer, group: str = "g", *stems: str) -> None:
    """As the admin."""
    fields = committed(peer, group, *(stems or (T, U)))
    answer = peer.admin.quietly("OffsetCommit", 9, fields)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
