"""Exactly once on three brokers, each of which is killed: consume, transform, produce.

Leaders of the input and of the output, both coordinators and the controller are among those that
die, whoever is what at the time. The output holds each input once for readers of committed records.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from ottla.testing import Cluster
from ottla.testing.history import check
from tests import needs
from tests.crash.test_cluster import KILLS, create_topic
from tests.crash.test_transactions_sigkill import (
    END_S,
    OUTPUT,
    RECORDS,
    SLOTS,
    SOURCE,
    Feeder,
    Reader,
    Workers,
    history_of,
    wait_for,
    wait_until_done,
)
from tests.crash.transform_worker import PARTITIONS

ROUNDS = needs.rounds(1, 20)  # each kills every broker once
INTERNAL_PARTITIONS = 3
CLUSTER_OPTIONS = {
    **KILLS,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": INTERNAL_PARTITIONS,
    "transaction_state_log_num_partitions": INTERNAL_PARTITIONS,
}

STUCK_S = 5.0


class WatchedWorkers(Workers):
    """Also kills a worker that is stuck in the middle of a transaction.

    librdkafka 2.15 drops a broker that Metadata no longer lists, and `send_offsets_to_transaction`
    then waits for ever, beyond its own time-out, for the group coordinator that it was (librdkafka
    issues 5511 and 5456). Killing a worker that is merely slow does no harm: whoever dies, each
    input is in the output once.
    """

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, folder)
        self._seen: dict[str, tuple[str, float]] = {}

    def keep_up(self) -> None:
        for slot, process in list(self.processes.items()):
            last = self._last_line(slot)
            seen, since_s = self._seen.get(slot, ("", 0.0))
            # The line may be of the process before; this one may take long to get to its first.
            begun = f'"{slot}/{process.pid}"' in last and '"ended"' not in last
            if last != seen:
                self._seen[slot] = (last, time.monotonic())
            elif begun and time.monotonic() - since_s > STUCK_S:
                self.kill(slot)
        super().keep_up()

    def _last_line(self, slot: str) -> str:
        path = self.folder / f"{slot}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return lines[-1] if lines else ""


def wait_until_in_sync(cluster: Cluster) -> None:
    """Until every partition has all its replicas: the next death costs none its leader."""
    for topic, count in (
        (SOURCE, PARTITIONS),
        (OUTPUT, PARTITIONS),
        ("__consumer_offsets", INTERNAL_PARTITIONS),
        ("__transaction_state", INTERNAL_PARTITIONS),
    ):
        for partition in range(count):
            cluster.wait_for_isr(topic, partition)


@pytest.mark.ottla(**CLUSTER_OPTIONS)
def test_exactly_once_while_every_broker_is_killed(ottla_cluster: Cluster, tmp_path: Path) -> None:
    """Each input is in the output once, and no transaction is seen in part."""
    cluster, chance = ottla_cluster, random.Random(11)
    bootstrap = cluster.bootstrap_servers
    create_topic(cluster, SOURCE, PARTITIONS)
    create_topic(cluster, OUTPUT, PARTITIONS)
    workers = WatchedWorkers(bootstrap, tmp_path)
    reader, feeder = Reader(bootstrap), Feeder(bootstrap)
    try:
        feeder.start()
        reader.start()
        workers.keep_up()
        feeder.feed(chance)
        wait_for(lambda: len(reader.polls) > 0)
        for _ in range(ROUNDS):
            for victim in chance.sample(cluster.node_ids, len(cluster.node_ids)):
                feeder.feed(chance)
                cluster.kill(victim)
                feeder.feed(chance)
                seen = len(reader.polls)
                wait_for(lambda seen=seen: workers.keep_up() or len(reader.polls) > seen)
                cluster.restart(victim)
                wait_until_in_sync(cluster)
        feeder.stop.set()
        feeder.join(END_S)
        wait_until_done(bootstrap, workers)
        expected = sorted(feeder.acknowledged)
        wait_for(lambda: len(reader.polls) >= len(expected))
        reader.read_on()
    finally:
        reader.stop.set()
        feeder.stop.set()
        for slot in SLOTS:
            workers.kill(slot)
        reader.join(END_S)
    found = sorted(int(value.split()[0]) for _, _, _, value in reader.polls)
    assert found == expected, f"{len(found)} of {len(expected)}"
    assert len(expected) == RECORDS * (6 * ROUNDS + 1)
    report = check(history_of(workers.journal(), reader))
    assert report, str(report)
