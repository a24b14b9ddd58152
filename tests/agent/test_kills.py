"""An agent and its broker killed at random moments: each line of the files arrives once.

A log is written and rotated by logrotate, by `create` and by `copytruncate`, which itself loses
what is written between copy and truncation. Judged by a recount: the files are read at the end, and
the topic must have their lines, each once.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests import needs
from tests.agent.kills import Agent, Reader, Writer

ROUNDS = needs.rounds(10, 40)
BROKER_KILL_EVERY = 4  # rounds
CASES = [
    pytest.param("memory", "copytruncate", id="memory-copytruncate"),
    pytest.param("file", "create\ncompress\ndelaycompress", id="file-create"),
    # The same with the other channel: each costs as much as those above.
    pytest.param("file", "copytruncate\ncompress", id="file-copytruncate", marks=pytest.mark.long),
    pytest.param("memory", "create", id="memory-create", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("channel", "how"), CASES)
@pytest.mark.timeout(600)
def test_each_line_arrives_once_whoever_is_killed(
    ottla_own_broker: Broker, tmp_path: Path, channel: str, how: str
) -> None:
    """SIGKILL of the agent in each round and of the broker in some, while files are rotated."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    writer = Writer(tmp_path / "logs", chance, how)
    agent = Agent(tmp_path, ottla_own_broker, channel)
    reader = Reader(ottla_own_broker)
    for number in range(ROUNDS):
        writer.act()
        agent.start()
        if chance.random() < 0.7:  # else it may be killed while it starts
            reader.read_more(agent)
        for _ in range(chance.randrange(3)):
            writer.act()
            time.sleep(chance.random() * 0.05)
        if number % BROKER_KILL_EVERY == BROKER_KILL_EVERY - 1:
            ottla_own_broker.kill()
            if chance.random() < 0.5:
                agent.kill()
                ottla_own_broker.start()
                continue
            ottla_own_broker.start()
            time.sleep(chance.random() * 0.1)
        agent.kill()
    writer.act()
    writer.rotate()
    agent.start()
    expected = writer.recount()
    reader.read_all(expected, agent)
    agent.kill()
    reader.poll()
    assert expected.total() == len(expected)
    doubled = (reader.lines - Counter(reader.lines.keys())).total()
    invented = [number for number in reader.lines if number >= writer.lines]
    assert (doubled, invented) == (0, []), f"seed {seed}: {doubled} lines arrived twice"
    lost = writer.lines - len(expected)  # by copytruncate itself
    assert not lost or "copytruncate" in how, f"seed {seed}: the files lost {lost} lines"
    reader.close()
    writer.close()
