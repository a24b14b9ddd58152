"""An agent and its broker killed at random moments: each line of the files arrives once.

A log is written and rotated by logrotate, by `create` and by `copytruncate`, which itself loses
what is written between copy and truncation. Judged by a recount: the files are read at the end, and
the topic must have their lines, each once.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests import needs
from tests.agent.kills import CHANNEL_TOPIC, SPOOLDIR, TOPIC, Agent, Reader, Writer
from tests.waiting import eventually

ROUNDS = needs.rounds(10, 40)
SPOOL_ROUNDS = needs.rounds(6, 40)
CHANNEL_ROUNDS = needs.rounds(4, 30)
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
    readers = [Reader(ottla_own_broker)]
    kill_at_random(ottla_own_broker, agent, readers, writer.act, chance, ROUNDS)
    writer.rotate()
    agent.start()
    readers[0].read_all(writer.recount(), agent)
    agent.kill()
    # Whatever is taken for a new file now is older than this, and read before.
    writer.write()
    agent.start()
    expected = writer.recount()
    check_all_arrived_once(agent, readers, expected, seed)
    assert max(readers[0].lines) < writer.lines
    lost = writer.lines - len(expected)  # by copytruncate itself
    assert not lost or "copytruncate" in how, f"seed {seed}: the files lost {lost} lines"
    writer.close()


@pytest.mark.timeout(600)
def test_a_topic_as_the_channel(ottla_own_broker: Broker, tmp_path: Path) -> None:
    """Each line is in the channel's topic once, for the positions of the files are in the same
    transactions; and in the sink's at least once, as the promise of a Kafka channel is."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    writer = Writer(tmp_path / "logs", chance, "create")
    agent = Agent(tmp_path, ottla_own_broker, "kafka")
    readers = [Reader(ottla_own_broker, f"{CHANNEL_TOPIC}-1"), Reader(ottla_own_broker, TOPIC)]
    kill_at_random(ottla_own_broker, agent, readers[:1], writer.act, chance, CHANNEL_ROUNDS)
    agent.start()
    expected = writer.recount()
    assert len(expected) == writer.lines
    readers[1].read_all(expected, agent)
    assert readers[1].lines.keys() == expected.keys(), f"seed {seed}"
    check_all_arrived_once(agent, readers[:1], expected, seed)
    readers[1].close()
    writer.close()


@pytest.mark.timeout(600)
def test_two_sinks_and_whole_files(ottla_own_broker: Broker, tmp_path: Path) -> None:
    """Files that are put into a spooling directory, into two topics: each has every line once, and
    each file is marked. A restart reads from the lesser position, and the other sink skips."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    logs = tmp_path / "logs"
    logs.mkdir()
    topics = "lines-one", "lines-two"
    agent = Agent(tmp_path, ottla_own_broker, "memory", source=SPOOLDIR, topics=topics)
    readers = [Reader(ottla_own_broker, topic) for topic in topics]
    lines = count()
    files = count()

    def put_file() -> None:
        made = b"".join(b"<%d:>\n" % next(lines) for _ in range(chance.randrange(1, 400)))
        (tmp_path / "new").write_bytes(made)
        (tmp_path / "new").rename(logs / f"{next(files)}.log")

    kill_at_random(ottla_own_broker, agent, readers, put_file, chance, SPOOL_ROUNDS)
    agent.start()
    check_all_arrived_once(agent, readers, Counter(range(next(lines))), seed, kill=False)
    number = next(files)
    eventually(lambda: len(list(logs.glob("*.COMPLETED"))) == number)
    agent.kill()


def kill_at_random(
    broker: Broker,
    agent: Agent,
    readers: Sequence[Reader],
    act: Callable[[], None],
    chance: random.Random,
    rounds: int,
) -> None:
    """Leaves the broker running, and the agent dead."""
    for number in range(rounds):
        act()
        agent.start()
        if chance.random() < 0.7:  # else it may be killed while it starts
            chance.choice(readers).read_more(agent)
        for _ in range(chance.randrange(3)):
            act()
            time.sleep(chance.random() * 0.05)
        if number % BROKER_KILL_EVERY == BROKER_KILL_EVERY - 1:
            broker.kill()
            if chance.random() < 0.5:
                agent.kill()
                broker.start()
                continue
            broker.start()
            time.sleep(chance.random() * 0.1)
        agent.kill()
    act()


def check_all_arrived_once(
    agent: Agent, readers: Sequence[Reader], expected: Counter[int], seed: int, kill: bool = True
) -> None:
    """Waits for all lines; kills the agent."""
    for reader in readers:
        reader.read_all(expected, agent)
    if kill:
        agent.kill()
    assert expected.total() == len(expected)
    for reader in readers:
        reader.poll()
        doubled = reader.lines.total() - len(reader.lines)
        assert not doubled, f"seed {seed}: {doubled} lines arrived twice"
        reader.close()
