"""Groups of the new protocol (KIP-848) in pictures: members, what they have, what is left."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from ottla import Producer
from ottla.client.admin import Admin
from ottla.console.collecting.collector import CollectedCluster
from ottla.testing import Broker
from tests.waiting import eventually


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({"orders": {"num_partitions": 2}})
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for each in range(10):
                producer.send("orders", b"x", partition=each % 2)
            producer.flush()
        yield broker.bootstrap_servers


def test_a_group_of_the_new_protocol_has_members_and_lag(bootstrap: str) -> None:
    """Kind, assignor, the member with its partitions, and the lag after a commit."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "new",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    cluster = CollectedCluster("main", {"bootstrap_servers": bootstrap}, interval_s=0.05)
    cluster.start()

    def has_all() -> bool:
        consumer.poll(0.05)
        cluster.refresh()
        group = cluster.picture.groups.get("new")
        return group is not None and any(len(each.assigned) == 2 for each in group.members)

    try:
        eventually(has_all, "no member has the partitions")
        consumer.commit(
            offsets=[ck.TopicPartition("orders", 0, 2), ck.TopicPartition("orders", 1, 5)],
            asynchronous=False,
        )
        cluster.refresh()
        eventually(lambda: cluster.picture.groups["new"].lag == 3, "the lag is not known")
        group = cluster.picture.groups["new"]
        assert (group.kind, group.state, group.protocol) == ("consumer", "Stable", "uniform")
        [member] = group.members
        assert member.assigned == (("orders", 0), ("orders", 1))
        assert {each.member_id for each in group.lags} == {member.member_id}
    finally:
        cluster.close()
        consumer.close()
