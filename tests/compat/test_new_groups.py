"""Consumers of the new group protocol (KIP-848), of confluent-kafka, on one live broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from tests.compat.groups import Reader, shared_out, spin
from tests.compat.test_confluent import make_topic
from tests.compat.test_groups import numbered
from tests.live import Server

pytestmark = pytest.mark.xdist_group("groups")
Named = Callable[[str], str]
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 100,
    "offsets.topic.num.partitions": 4,
}


class NewReader(Reader):
    """One consumer of the new protocol; knows what it has."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **config: Any) -> None:
        self.values: list[bytes] = []
        self.assigned: set[tuple[str, int]] = set()
        self.revoked: set[tuple[str, int]] = set()
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.assigned |= {(each.topic, each.partition) for each in partitions}
        consumer.incremental_assign(partitions)

    def _revoke(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.revoked |= {(each.topic, each.partition) for each in partitions}
        self.assigned -= self.revoked
        consumer.incremental_unassign(partitions)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members send heartbeats often."""
    with Server(tmp_path_factory.mktemp("new-groups") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


def test_one_member_reads_a_topic(bootstrap: str, new_name: Named) -> None:
    """A consumer of the new protocol gets every partition, reads, commits, and goes on there."""
    topic, group = new_name("alone"), new_name("one")
    make_topic(bootstrap, topic, 3)
    numbered(bootstrap, topic, 30, 3)
    reader = NewReader(bootstrap, group, [topic])
    spin([reader], lambda: len(reader.values) == 30)
    assert sorted(map(int, reader.values)) == list(range(30))
    reader.consumer.commit(asynchronous=False)
    reader.consumer.close()
    numbered(bootstrap, topic, 3, 3, start=30)
    successor = NewReader(bootstrap, group, [topic])
    spin([successor], lambda: len(successor.values) == 3)
    assert sorted(map(int, successor.values)) == [30, 31, 32]
    successor.consumer.close()


def test_members_share_and_keep_what_they_can(bootstrap: str, new_name: Named) -> None:
    """A second member takes half, the first gives up only that; when it leaves, it gets it back."""
    topic, group = new_name("shared"), new_name("two")
    make_topic(bootstrap, topic, 6)
    first = NewReader(bootstrap, group, [topic])
    spin([first], lambda: len(first.assigned) == 6)
    second = NewReader(bootstrap, group, [topic])
    both = [first, second]
    spin(both, lambda: shared_out(both, 6) and len(second.assigned) == 3)
    assert first.revoked == second.assigned
    second.consumer.close()
    spin([first], lambda: len(first.assigned) == 6)
    first.consumer.close()
