"""confluent-kafka's share consumer on one live broker (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from tests.compat.test_confluent import make_topic
from tests.compat.test_groups import numbered
from tests.live import Server
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("shares")
Named = Callable[[str], str]
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "offsets.topic.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members send heartbeats often."""
    with Server(tmp_path_factory.mktemp("shares") / "data", settings=SETTINGS) as server:
        yield server.bootstrap


def share_consumer(bootstrap: str, group: str, topics: list[str], **config: Any) -> Any:
    made = ck.ShareConsumer(  # type: ignore[attr-defined]
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    made.subscribe(topics)
    return made


def test_a_share_consumer_reads_a_topic(bootstrap: str, new_name: Named) -> None:
    """Every record is delivered once to a group that begins at the earliest record."""
    topic, group = new_name("queue"), new_name("workers")
    make_topic(bootstrap, topic, 3)
    numbered(bootstrap, topic, 30, 3)
    from_earliest(bootstrap, group)
    consumer = share_consumer(bootstrap, group, [topic])
    values: list[bytes] = []

    def all_read() -> bool:
        values.extend(each.value() for each in consumer.poll(timeout=0.2))
        return len(values) >= 30

    eventually(all_read)
    assert sorted(map(int, values)) == list(range(30))
    consumer.close()


def from_earliest(bootstrap: str, group: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
