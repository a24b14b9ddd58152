"""A follower far behind, and many partitions with three replicas."""

from __future__ import annotations

import contextlib
import time

import confluent_kafka as ck
from confluent_kafka import admin as cka

from benchmarks import clients
from benchmarks.cluster_faults import each_engine, record, takeover_gap_s
from benchmarks.cluster_run import ClusterRun, Kinds, both
from benchmarks.cluster_servers import REPLICATION_FACTOR, Cluster, until
from benchmarks.probe import Probe

EACH = 100  # partitions of a topic
TOPICS_IN_REQUEST = 10
ROUNDS_MAX = 3  # gigabytes, and thousands of partitions, for each of them
SETTLE_S = 10.0
IDLE_S = 20.0
TAKEOVER = "3,000 partitions x 3: controller killed{}: longest gap in topic creation, s"


def catch_up(run: ClusterRun, kinds: Kinds) -> None:
    """A follower that lacks `catch_up_megabytes`: how fast it copies, and what others notice."""
    with both(kinds) as clusters:
        for number in run.numbers(ROUNDS_MAX):
            for cluster in clusters:
                topic = f"behind-{number}"
                cluster.make_topic(topic, replicas=(1, 2, 3))
                cluster.make_topic(f"probe-{number}", replicas=(1, 2, 3))
                cluster.members[3].stop()
                clients.produce(cluster.bootstrap, topic, run.catch_up_megabytes, acks="all")
                with Probe(cluster.members[1].port, f"probe-{number}") as probe:
                    seconds = copy_s(cluster, topic)
                rate = run.catch_up_megabytes / seconds
                run.record("new follower: catching up, MB/s", cluster.name, rate)
                row = "new follower: the leader's p99 meanwhile, ms"
                run.record(row, cluster.name, probe.p99_ms)
                cluster.delete_topic(topic)


def copy_s(cluster: Cluster, topic: str) -> float:
    """Start broker 3; seconds from its first bytes of the topic until it is in the ISR."""
    follower = cluster.members[3]
    before = follower.log_bytes(topic)
    follower.launch()
    until(lambda: follower.log_bytes(topic) > before, "the follower does not begin")
    began = time.perf_counter()
    cluster.wait_for_isr(topic)
    return time.perf_counter() - began


def many_partitions(run: ClusterRun, kinds: Kinds) -> None:
    """Create many, leave them alone, and kill the broker that leads a third of them."""
    for _ in run.numbers(ROUNDS_MAX):
        for kind in kinds:
            with both((kind,)) as (cluster,):
                seconds = create_many(run, cluster)
                run.record("3,000 partitions x 3: create, s", cluster.name, seconds)
                time.sleep(SETTLE_S)
                before = cluster.cpu_s()
                time.sleep(IDLE_S)
                share = (cluster.cpu_s() - before) / IDLE_S * 100
                row = "3,000 partitions x 3: idle CPU of the three, % of a core"
                run.record(row, cluster.name, share)
                victim = next(each for each in cluster.members if each != cluster.controller())
                row = "3,000 partitions x 3: fail over one broker's leaders, s"
                run.record(row, cluster.name, fail_over_s(run, cluster, victim))


def takeover(run: ClusterRun, kinds: Kinds) -> None:
    """Kill the controller of many partitions, one of whose brokers it is: others lead, and one of
    them reads all and goes on."""
    for kind in each_engine(kinds):
        with both((kind,)) as (cluster,):
            create_many(run, cluster)
            record(run, TAKEOVER, cluster, takeover_gap_s(cluster, cluster.controller()))


def create_many(run: ClusterRun, cluster: Cluster) -> float:
    """Seconds until all topics are made and every partition has a leader."""
    topics = [
        cka.NewTopic(f"many-{i}", EACH, REPLICATION_FACTOR) for i in range(run.partitions // EACH)
    ]
    began = time.perf_counter()
    for start in range(0, len(topics), TOPICS_IN_REQUEST):
        made = cluster.admin.create_topics(
            topics[start : start + TOPICS_IN_REQUEST], request_timeout=120
        )
        for future in made.values():
            future.result(120)
    until(lambda: len(leaders(cluster)) == run.partitions, "not all partitions have leaders")
    return time.perf_counter() - began


def fail_over_s(run: ClusterRun, cluster: Cluster, victim: int) -> float:
    """Seconds from the SIGKILL of a broker until others lead all that it led."""
    assert victim in leaders(cluster)
    began = time.perf_counter()
    cluster.members[victim].kill()

    def led_by_others() -> bool:
        with contextlib.suppress(ck.KafkaException):
            found = leaders(cluster)
            return len(found) == run.partitions and victim not in found
        return False

    until(led_by_others, "partitions are still without a leader")
    return time.perf_counter() - began


def leaders(cluster: Cluster) -> list[int]:
    """The leaders of all partitions that have one."""
    return [
        partition.leader
        for name, topic in cluster.admin.list_topics(timeout=60).topics.items()
        if name.startswith("many-")
        for partition in topic.partitions.values()
        if partition.leader >= 0
    ]


SCALE = {"catch-up": catch_up, "partitions": many_partitions, "takeover": takeover}
