"""Measures of groups and committed offsets: commits, joins, loading, heartbeats."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable

from benchmarks import clients, raw
from benchmarks.measures import Run
from benchmarks.members import Member, enter, first_records, wait_for_coordinator
from benchmarks.servers import BOTH, Broker

OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 5
MEMBERS = 1000
GROUP_SIZE = 10
HEARTBEAT_S = 3.0
LOADED_GROUPS, LOADED_PARTITIONS = 1000, 100


def commit_frame(group: str, topic: str, offsets: dict[int, int]) -> bytes:
    """OffsetCommit of a client that has not joined."""
    body = raw.text(group) + struct.pack(">i", -1) + raw.text("")
    body += struct.pack(">i", 1) + raw.text(topic) + struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iq", partition, offset) + raw.text("")
    return raw.frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)


def commit_rate(port: int, *, in_flight: int, seconds: float) -> float:
    """OffsetCommit requests per second of one partition, keeping `in_flight` outstanding."""
    one = commit_frame("committer", "committed", {0: 7})
    return raw.request_rate(
        port,
        one,
        lambda answer: answer[-2:] == b"\0\0",
        in_flight=in_flight,
        seconds=seconds,
    )


def commits(run: Run) -> None:
    """OffsetCommit requests/s over one connection; CPU of 1,000 groups that commit each second."""
    brokers: list[Broker] = [kind() for kind in BOTH]
    try:
        for broker in brokers:
            broker.start()
            clients.make_topic(broker.bootstrap, "committed")
            wait_for_coordinator(broker.port, "committer", *(f"group-{i}" for i in range(1000)))
            commit_rate(broker.port, in_flight=50, seconds=4)
        for _ in range(run.rounds):
            for broker in brokers:
                rate = commit_rate(broker.port, in_flight=50, seconds=4)
                run.record("OffsetCommit requests/s, 50 in flight", broker.name, rate)
        for broker in brokers:
            share = busy_groups(broker, seconds=8)
            run.record("1,000 groups committing each second, % of a core", broker.name, share)
    finally:
        for broker in brokers:
            broker.remove()


def busy_groups(broker: Broker, seconds: int) -> float:
    """Percent of a core while 1,000 groups commit once a second, over ten connections."""
    socks = [raw.connect(broker.port) for _ in range(10)]
    frames = [commit_frame(f"group-{i}", "committed", {0: i}) for i in range(1000)]
    before, began = broker.cpu_s(), time.perf_counter()
    for turn in range(seconds * 100):
        for i in range(10):
            socks[i].sendall(frames[turn * 10 % 1000 + i])
        for sock in socks:
            raw.receive(sock)
        time.sleep(max(0.0, began + (turn + 1) / 100 - time.perf_counter()))
    share = (broker.cpu_s() - before) / (time.perf_counter() - began) * 100
    for sock in socks:
        sock.close()
    return share


def joins(run: Run) -> None:
    """From the first request of a new group to the first record of its last member."""
    for count, delay_ms in ((1, 0), (50, 100)):
        brokers = [kind({"group.initial.rebalance.delay.ms": str(delay_ms)}) for kind in BOTH]
        try:
            for broker in brokers:
                broker.start()
                clients.make_topic(broker.bootstrap, "read")
                with raw.connect(broker.port) as sock:
                    sock.sendall(raw.produce_frame("read", 0, b"x" * 100))
                    raw.receive(sock)
                for number in range(5):
                    join_s(broker.port, f"warm-{number}", count)
            for number in range(max(5, run.rounds) * 4):
                for broker in brokers:
                    taken_ms = join_s(broker.port, f"new-{number}", count) * 1000
                    name = f"join to first record, {count} member{'s' * (count > 1)}, ms"
                    run.figures[name][broker.name].append(taken_ms)
            for broker in brokers:
                found = statistics.median(run.figures[name][broker.name])
                print(f"  {broker.name:6} {name}: {found:,.3f}", flush=True)
        finally:
            for broker in brokers:
                broker.remove()


def join_s(port: int, group: str, count: int) -> float:
    wait_for_coordinator(port, "somebody")
    members = [Member(port, group) for _ in range(count)]
    began = time.perf_counter()
    wait_for_coordinator(port, group)
    enter(members)
    first_records(members, "read")
    taken_s = time.perf_counter() - began
    for member in members:
        member.sock.close()
    return taken_s


def loading(run: Run) -> None:
    """100,000 committed offsets: seconds after a restart until every group is loaded."""
    groups = [f"loaded-{i}" for i in range(LOADED_GROUPS)]
    for kind in BOTH:
        broker = kind({"offsets.topic.num.partitions": "50"})
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "wide", partitions=LOADED_PARTITIONS)
            wait_for_coordinator(broker.port, *groups)
            offsets = {index: index for index in range(LOADED_PARTITIONS)}
            with raw.connect(broker.port) as sock:
                for group in groups:
                    sock.sendall(commit_frame(group, "wide", offsets))
                    raw.receive(sock)
            for _ in range(max(2, run.rounds)):
                broker.stop()
                began = time.perf_counter()
                started_s = broker.start()
                wait_for_coordinator(broker.port, *groups)
                taken_s = time.perf_counter() - began
                measure = "restart with 100,000 committed offsets, s"
                run.record(measure, broker.name, taken_s)
                measure = "loading 100,000 committed offsets after the first produce, s"
                run.record(measure, broker.name, taken_s - started_s)
        finally:
            broker.remove()


def heartbeats(run: Run) -> None:
    """CPU of a broker that holds 1,000 members which heartbeat every 3 s and do nothing else."""
    for kind in BOTH:
        broker = kind({"group.initial.rebalance.delay.ms": "2000"})
        try:
            broker.start()
            wait_for_coordinator(broker.port, "held-0")
            members = [Member(broker.port, f"held-{i // GROUP_SIZE}") for i in range(MEMBERS)]
            enter(members)
            frames = [member.heartbeat() for member in members]
            beat(members, frames, rounds=1)
            before, began = broker.cpu_s(), time.perf_counter()
            beat(members, frames, rounds=4)
            share = (broker.cpu_s() - before) / (time.perf_counter() - began) * 100
            run.record("1,000 members that heartbeat, % of a core", broker.name, share)
        finally:
            broker.remove()


def beat(members: list[Member], frames: list[bytes], *, rounds: int) -> None:
    began = time.perf_counter()
    for number in range(rounds * len(members)):
        member = members[number % len(members)]
        member.sock.sendall(frames[number % len(members)])
        answer = raw.receive(member.sock)
        assert answer[-2:] == b"\0\0", answer
        due = began + (number + 1) * HEARTBEAT_S / len(members)
        time.sleep(max(0.0, due - time.perf_counter()))


MEASURES: dict[str, Callable[[Run], None]] = {
    "commits": commits,
    "joins": joins,
    "loading": loading,
    "heartbeats": heartbeats,
}
