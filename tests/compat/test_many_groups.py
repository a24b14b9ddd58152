"""Many groups on one live broker: a thousand members, ten thousand groups through a restart."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw
from benchmarks.groups import commit_frame
from benchmarks.members import Member, accepted_connection, ask, enter, wait_for_coordinator
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.compat.test_confluent import make_topic
from tests.live import Server

MEMBERS, GROUP_SIZE = 1000, 10
GROUPS = 10_000
SETTINGS: dict[str, Any] = {"group.initial.rebalance.delay.ms": 1500}
pytestmark = pytest.mark.xdist_group("many_groups")


def beats(members: list[Member]) -> list[bytes]:
    """The error codes of a heartbeat of each member."""
    for member in members:
        member.sock.sendall(member.heartbeat())
    return [raw.receive(member.sock)[-2:] for member in members]


def test_a_thousand_members_in_a_hundred_groups(tmp_path: Path) -> None:
    """All become members in one generation each, and go on in it through a killed broker."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        wait_for_coordinator(server.port, "many-0")
        members = [Member(server.port, f"many-{i // GROUP_SIZE}") for i in range(MEMBERS)]
        enter(members)
        leaders = [member for member in members if member.others]
        assert len(leaders) == MEMBERS // GROUP_SIZE
        assert {len(leader.others) for leader in leaders} == {GROUP_SIZE}
        assert set(beats(members)) == {b"\0\0"}
        server.kill()
        server.start()
        wait_for_coordinator(server.port, *(f"many-{i}" for i in range(MEMBERS // GROUP_SIZE)))
        for member in members:
            member.sock.close()
            member.sock = accepted_connection(server.port)
        assert set(beats(members)) == {b"\0\0"}
        for member in members:
            member.sock.close()


class Load(threading.Thread):
    """Commits 1, 2, 3 … for its groups in turns; remembers what was acknowledged."""

    def __init__(self, port: int, groups: list[str]) -> None:
        super().__init__()
        self.port = port
        self.groups = groups
        self.acknowledged = dict.fromkeys(groups, 0)
        self.done = threading.Event()

    def run(self) -> None:
        try:
            with raw.connect(self.port) as sock:
                while not self.done.is_set():
                    for group in self.groups:
                        offset = self.acknowledged[group] + 1
                        sock.sendall(commit_frame(group, "load", {0: offset}))
                        assert raw.receive(sock)[-2:] == b"\0\0"
                        self.acknowledged[group] = offset
        except OSError:
            pass  # the broker is gone


def committed(port: int, groups: list[str]) -> dict[str, int]:
    found = {}
    with raw.connect(port) as sock:
        for start in range(0, len(groups), 500):
            asked = OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group,
                        topics=[OffsetFetchRequestTopics(name="load", partition_indexes=[0])],
                    )
                    for group in groups[start : start + 500]
                ]
            )
            for answer in ask(sock, asked).groups:
                assert answer.error_code == 0
                found[answer.group_id] = answer.topics[0].partitions[0].committed_offset
    return found


def test_the_log_of_offsets_is_compacted(tmp_path: Path) -> None:
    """Commits of a busy group do not pile up, and what is left after a kill is the last of each."""
    settings = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 1_048_576,
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.segment.delete.delay.ms": 0,
    }
    rounds, groups = 120, [f"busy-{i}" for i in range(500)]
    data = tmp_path / "data"
    with Server(data, settings=settings) as server:
        make_topic(server.bootstrap, "load", 1)
        wait_for_coordinator(server.port, groups[0])
        with raw.connect(server.port) as sock:
            for number in range(1, rounds + 1):
                sock.sendall(b"".join(commit_frame(each, "load", {0: number}) for each in groups))
                for _ in groups:
                    assert raw.receive(sock)[-2:] == b"\0\0"
        written = rounds * len(groups) * 100
        deadline = time.monotonic() + 60
        while log_bytes(data) > written // 2:
            assert time.monotonic() < deadline, f"{log_bytes(data)} bytes after {written}"
            time.sleep(0.1)
        server.kill()
        server.start()
        wait_for_coordinator(server.port, *groups)
        assert set(committed(server.port, groups).values()) == {rounds}


def log_bytes(data: Path) -> int:
    return sum(each.stat().st_size for each in data.glob("__consumer_offsets-0/*.log"))


def test_restart_under_load(tmp_path: Path) -> None:
    """Killed while all commit: no acknowledged commit is lost."""
    groups = [f"load-{i}" for i in range(GROUPS)]
    with Server(tmp_path / "data") as server:
        make_topic(server.bootstrap, "load", 1)
        wait_for_coordinator(server.port, groups[0])
        loads = [Load(server.port, groups[i::4]) for i in range(4)]
        for load in loads:
            load.start()
        deadline = time.monotonic() + 60
        while min(min(load.acknowledged.values()) for load in loads) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        server.kill()
        for load in loads:
            load.done.set()
            load.join()
        server.start()
        wait_for_coordinator(server.port, *groups[:200])
        found = committed(server.port, groups)
    acknowledged = {group: offset for load in loads for group, offset in load.acknowledged.items()}
    lost = {g: (found[g], offset) for g, offset in acknowledged.items() if found[g] < offset}
    assert not lost
    assert all(found[group] <= offset + 1 for group, offset in acknowledged.items())
