"""Measures of large groups and large offset logs, and what other clients notice of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import clients, raw
from benchmarks.groups import commit_frame
from benchmarks.measures import Run
from benchmarks.members import Member, encode, enter, together, wait_for_coordinator
from benchmarks.probe import Probe
from benchmarks.servers import BOTH

MEMBERS = 2000
# Long enough for the first requests of all members on a busy machine.
REBALANCE_DELAY_MS = 3000
LOADED_PARTITIONS = 100
LOADED_GROUPS = 1000
LOADED_ROUNDS = 10
COMMITS_IN_FLIGHT = 20


def large_group(run: Run) -> None:
    """One group of 2,000 members: the first join, then a rebalance of all of them."""
    for kind in BOTH:
        settings = {"group.initial.rebalance.delay.ms": str(REBALANCE_DELAY_MS)}
        broker = kind(settings)
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "other")
            wait_for_coordinator(broker.port, "large")
            members = [Member(broker.port, "large") for _ in range(MEMBERS)]
            before = broker.cpu_s()
            with Probe(broker.port, "other") as probe:
                enter(members)
            run.record("2,000 members join: CPU s", broker.name, broker.cpu_s() - before)
            run.record("2,000 members join: another client p99, ms", broker.name, probe.p99_ms)
            for _ in range(run.rounds):
                with Probe(broker.port, "other") as probe:
                    taken_s = rebalance_s(members)
                run.record("rebalance of 2,000 members, s", broker.name, taken_s)
                name = "rebalance of 2,000 members: another client p99, ms"
                run.record(name, broker.name, probe.p99_ms)
        finally:
            broker.remove()


def rebalance_s(members: list[Member]) -> float:
    """The leader joins again, then all members: until the last has its assignment."""
    leader = next(member for member in members if member.others)
    rest = [member for member in members if member is not leader]
    began = time.perf_counter()
    leader.sock.sendall(encode(leader.join_request()))
    time.sleep(0.1)  # until it is handled: a member of a stable group is answered at once
    for member in rest:
        member.sock.sendall(encode(member.join_request()))
    for member in members:
        member.joined()
    together(members, Member.sync_request, Member.synced)
    return time.perf_counter() - began - 0.1


def loading_log(run: Run) -> None:
    """A million records in one partition of `__consumer_offsets`, of 100,000 offsets."""
    records = LOADED_GROUPS * LOADED_PARTITIONS * LOADED_ROUNDS
    for kind in BOTH:
        broker = kind({"offsets.topic.num.partitions": "1"})
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "other")
            clients.make_topic(broker.bootstrap, "wide", partitions=LOADED_PARTITIONS)
            wait_for_coordinator(broker.port, "loaded-0")
            commit_all(broker.port)
            broker.stop()
            broker.start(topic="other")
            before, began = broker.cpu_s(), time.perf_counter()
            with Probe(broker.port, "other") as probe:
                wait_for_coordinator(broker.port, "loaded-0")
                taken_s = time.perf_counter() - began
                cpu_s = broker.cpu_s() - before
                time.sleep(0.5)
            run.record("loading: CPU s, with another client's requests", broker.name, cpu_s)
            name = "loading 1,000,000 offset records after the first produce, s"
            run.record(name, broker.name, taken_s)
            run.record("loading offset records/s", broker.name, records / taken_s)
            run.record("loading: another client p99, ms", broker.name, probe.p99_ms)
        finally:
            broker.remove()


def commit_all(port: int) -> None:
    with raw.connect(port) as sock:
        waiting = 0
        for turn in range(LOADED_ROUNDS):
            offsets = dict.fromkeys(range(LOADED_PARTITIONS), turn)
            for number in range(LOADED_GROUPS):
                sock.sendall(commit_frame(f"loaded-{number}", "wide", offsets))
                waiting += 1
                while waiting >= COMMITS_IN_FLIGHT:
                    raw.receive(sock)
                    waiting -= 1
        for _ in range(waiting):
            raw.receive(sock)


MEASURES: dict[str, Callable[[Run], None]] = {
    "large-group": large_group,
    "loading-log": loading_log,
}
