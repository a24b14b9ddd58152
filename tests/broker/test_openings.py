"""Thousands of replicas that a change brings: opened beside requests, or when asked for."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.openings import AT_ONCE, Openings
from ottla.cluster.requests import TopicRef
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import Cluster
from tests.broker.harness import DATA, produce_request
from tests.replica.test_idle import Reads

MORE = 20
READS_EACH_MAX = 40  # of two followers


class Held:
    """What is not opened at once is opened after `let_go`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        finish, self._held = Openings.finish, True

        async def finish_later(openings: Openings) -> None:
            while self._held:
                await asyncio.sleep(0.01)
            await finish(openings)

        patch.setattr(Openings, "finish", finish_later)

    def let_go(self) -> None:
        self._held = False


def opened(cluster: Cluster, broker_id: int) -> int:
    return len(cluster.brokers[broker_id].broker.partitions.opened("t"))


def test_the_answer_waits_for_the_first_few_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large topic is answered when some of its replicas are open, and gets all of them; one that
    is written to meanwhile is opened on its leader and, once it is its turn, on its followers.
    """
    with Cluster(3) as cluster:
        held = Held(monkeypatch)
        assert cluster.create("t", AT_ONCE + MORE, 3, through=2).error_code == ErrorCode.NONE
        assert opened(cluster, 2) == AT_ONCE
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        last = AT_ONCE + MORE - 1
        leader = cluster.partition("t", last).leader
        batch = write_batch([Record(b"v", timestamp=cluster.client.clock.now_ms())])
        answer = cluster.ask(leader, produce_request("t", last, batch, acks=1), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        partition = cluster.brokers[leader].broker.partitions.by_name["t"][last]
        assert partition.high_watermark == 0
        held.let_go()
        cluster.wait(lambda: partition.high_watermark == 1)
        cluster.wait(lambda: all(opened(cluster, each) == AT_ONCE + MORE for each in (1, 2, 3)))


def test_a_small_topic_is_whole_when_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the replicas of a large one wait."""
    with Cluster(3) as cluster:
        Held(monkeypatch)
        assert cluster.create("large", 3 * AT_ONCE, 3, through=2).error_code == ErrorCode.NONE
        assert cluster.create("t", AT_ONCE, 3, through=2).error_code == ErrorCode.NONE
        assert opened(cluster, 2) == AT_ONCE


def test_what_is_deleted_meanwhile_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anything of it stay behind; another topic of the name is opened in full."""
    with Cluster(3) as cluster:
        held = Held(monkeypatch)
        assert cluster.create("t", AT_ONCE + MORE, 3, through=2).error_code == ErrorCode.NONE
        cluster.run(cluster.brokers[1].node, cluster.controller.delete_topics([TopicRef("t")]))
        brokers = [each.broker for each in cluster.brokers.values()]
        cluster.wait(lambda: not any("t" in each.image.topics for each in brokers))
        held.let_go()
        cluster.wait(lambda: not any(each.image.deletions for each in brokers))
        for broker in cluster.brokers.values():
            folders = [each.name for each in broker.node.disk.entries(DATA) if each.is_directory]
            assert [name for name in folders if not name.endswith("-delete")] == []
        assert cluster.create("t", AT_ONCE + MORE, 3, through=2).error_code == ErrorCode.NONE
        cluster.wait(lambda: all(opened(cluster, each) == AT_ONCE + MORE for each in (1, 2, 3)))


def test_what_is_opened_bit_by_bit_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each few that are open are asked for by a fetch that overtakes the one before. With news of
    many partitions it is answered at once; they were read again by each that came after it.
    """
    count = 400

    async def finish_in_steps(openings: Openings) -> None:
        for number, key in enumerate(tuple(openings._waiting)):
            if number % 10 == 0:
                await asyncio.sleep(0.002)
            openings._open(key)

    monkeypatch.setattr(Openings, "finish", finish_in_steps)
    with Cluster(3) as cluster, Reads() as reads:
        assert cluster.create("t", count, 3, through=2).error_code == ErrorCode.NONE
        cluster.wait(lambda: all(opened(cluster, each) == count for each in (1, 2, 3)))
        cluster.simulation.run_for(1)
        assert reads.count <= READS_EACH_MAX * count
