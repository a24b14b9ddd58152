"""Agents as processes: one that was thought dead comes back; a channel's file is damaged."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from ottla.supervisor.ports import free_port
from ottla.testing.broker import Broker
from tests.agent.kills import Agent, Reader, Writer, accepts, send_lines
from tests.waiting import eventually, suspend

LOST = re.compile(r": (\d+) events from sequence number|, (\d+) events from sequence number")


def test_a_zombie_of_the_same_instance_is_fenced(ottla_broker: Broker, tmp_path: Path) -> None:
    """It stands still while another process of the instance takes over; when it goes on it ends
    with a sentence, and each line arrived once."""
    topic = "zombie-lines"
    writer = Writer(tmp_path / "logs", random.Random(1), "create")
    old, new = (
        Agent(tmp_path, ottla_broker, "memory", "--instance", "web1", topics=[topic])
        for _ in range(2)
    )
    reader = Reader(ottla_broker, topic)
    writer.write()
    old.start("data-old")
    reader.read_all(writer.recount(), old)
    assert old.process is not None
    suspend(old.process.pid)
    writer.write()
    new.start("data-new")
    reader.read_all(writer.recount(), new)
    old.signal(signal.SIGCONT)
    writer.write()
    assert old.process.wait(60) == 1, old.words()
    assert "another process of this instance has taken over" in old.words(), old.words()
    writer.write()
    reader.read_all(writer.recount(), new)
    new.kill()
    reader.poll()
    assert reader.lines == writer.recount()
    reader.close()
    writer.close()


def test_a_file_channel_takes_events_before_the_broker_is_there(
    ottla_own_broker: Broker, tmp_path: Path
) -> None:
    """Two lives of an agent that cannot reach its broker: what a source of events that come only
    once has answered with OK is on disk, and arrives once."""
    port = free_port()
    source = "type = netcat", "bind = 127.0.0.1", f"port = {port}"
    agent = Agent(tmp_path, ottla_own_broker, "file", source=source)
    with agent.config.open("a") as config:
        config.write("a1.sinks.k1.delivery = exactly-once\n")
    reader = Reader(ottla_own_broker)
    for first, broker_is_there in (0, True), (100, False), (200, False), (300, True):
        if not broker_is_there:
            ottla_own_broker.kill()
        elif not ottla_own_broker.running:
            ottla_own_broker.start()
        agent.start()
        eventually(lambda: accepts(agent, port))
        send_lines(port, range(first, first + 100))
        if broker_is_there:
            reader.read_all(Counter(range(first + 100)), agent)
        agent.kill()
    reader.poll()
    assert reader.lines == Counter(range(400))
    reader.close()


@pytest.mark.parametrize("damage", ["cut short", "a bit flipped"])
def test_a_damaged_channel_loses_no_more_than_it_counts(
    ottla_own_broker: Broker, tmp_path: Path, damage: str
) -> None:
    """While the broker is away events pile up in the channel; the agent is killed, its file is
    damaged. What was cut off is read again from the log; a frame with a wrong bit is counted. No
    line arrives twice."""
    chance = random.Random()
    writer = Writer(tmp_path / "logs", chance, "create")
    agent = Agent(tmp_path, ottla_own_broker, "file")
    reader = Reader(ottla_own_broker)
    writer.write()
    agent.start()
    reader.read_all(writer.recount(), agent)
    ottla_own_broker.kill()
    newest, before = newest_segment(tmp_path)
    for _ in range(5):
        writer.write(2000)
    written = writer.log.stat().st_size
    eventually(lambda: agent.check_running() or size_of(tmp_path) >= written)
    agent.kill()
    newest, _ = newest_segment(tmp_path)
    data = bytearray(newest.read_bytes())
    at = chance.randrange(before, len(data))
    if damage == "cut short":
        del data[at:]
    else:
        data[at] ^= 1 << chance.randrange(8)
    newest.write_bytes(data)
    ottla_own_broker.start()
    agent.start()
    writer.write()
    expected = writer.recount()
    last = max(expected)
    reader.read_all(Counter([last]), agent)
    missing = expected - reader.lines
    counted = sum(int(one or other) for one, other in LOST.findall(agent.log.read_text()))
    if damage == "cut short":
        assert missing.total() == 0, agent.words()
    else:
        assert 0 < missing.total() <= counted, agent.words()
    assert reader.lines == expected - missing
    agent.kill()
    reader.close()
    writer.close()


def segments(directory: Path) -> list[Path]:
    found = (directory / "data").rglob("*.channel")
    return sorted(found, key=lambda path: path.name)


def newest_segment(directory: Path) -> tuple[Path, int]:
    """And its bytes."""
    newest = segments(directory)[-1]
    return newest, newest.stat().st_size


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in segments(directory))
