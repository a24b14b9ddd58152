"""Clocks that jump: time-outs and timers go by one that cannot be set, and nothing is lost or
doubled when the other one is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import Delivery
from ottla.agent.files.listing import FileGroup
from ottla.agent.output import SourceOutput
from ottla.agent.positions import SinkIdentity
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sources.exec import ExecSource
from ottla.agent.sources.seq import SequenceSource
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from ottla.client.admin import Admin
from ottla.client.admin.types import NewTopic
from ottla.testing.broker import Broker
from tests.agent.files_harness import Collected, Running, Ticks, append
from tests.agent.reading import numbers
from tests.agent.test_exec_source import Collected as ExecOutput
from tests.apache.kafka import ApacheKafka

GIVE_UP_S = 90.0
YEAR_S = 365 * 24 * 3600.0


class Clock:
    """The time of the machine, as somebody sets it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._time = time.time

    def time(self) -> float:
        return self._time() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made.time)
    monkeypatch.setattr(time, "time_ns", lambda: int(made.time() * 1e9))
    return made


def wiring(bootstrap: str, topic: str, events_total: int) -> Wiring:
    options = {"bootstrap.servers": bootstrap, "request.timeout.ms": 5000}
    sink = KafkaSink("k1", topic, options, SinkIdentity("here", topic, "k1"))
    channel = MemoryChannel("c1", 100, 1 << 20)
    source = SequenceSource("r1", 10, events_total)
    return Wiring(
        [(source, SourceOutput([channel], []), [channel])], [channel], [Delivery(sink, channel, 25)]
    )


async def delivered(wired: Wiring, running: asyncio.Task[None], offset: int) -> None:
    [delivery] = wired.deliveries
    async with asyncio.timeout(GIVE_UP_S):
        while not any(each.offset >= offset for each in delivery.positions.values()):
            assert not running.done(), running.exception()
            delivery.delivered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(delivery.delivered.wait(), 0.2)


def jumps(bootstrap: str, topic: str, clock: Clock) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        configs = {"message.timestamp.type": "LogAppendTime"}
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs=configs)])

    async def run(first: int, last: int, *aheads_s: float) -> None:
        wired = wiring(bootstrap, topic, last)
        running = asyncio.create_task(run_agent(wired))
        await delivered(wired, running, first)
        for ahead_s in aheads_s:
            clock.ahead_s = ahead_s
            [delivery] = wired.deliveries
            count = delivery.counts.deliveries
            while delivery.counts.deliveries == count and not any(
                each.offset >= last for each in delivery.positions.values()
            ):
                await asyncio.sleep(0.001)
        await delivered(wired, running, last)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run(1, 20_000, YEAR_S, -YEAR_S, 0.0, YEAR_S))
    asyncio.run(run(20_001, 40_000))  # started a year ahead
    clock.ahead_s = -YEAR_S
    asyncio.run(run(40_001, 41_000))
    assert numbers(bootstrap, topic) == list(range(41_000))


def test_jumps_lose_and_double_nothing(ottla_broker: Broker, clock: Clock) -> None:
    """A year ahead and back while the agent runs, and between its runs: each event arrives once,
    without waiting for the time that was left out."""
    jumps(ottla_broker.bootstrap_servers, "jumps", clock)


@pytest.mark.apache
def test_jumps_on_apache_kafka(apache_kafka: ApacheKafka, clock: Clock) -> None:
    """The same on Apache Kafka, which refuses times that are over an hour ahead: positions are kept
    by the time of the broker."""
    jumps(apache_kafka.bootstrap, "jumps", clock)


def test_events_that_are_ahead_wait_until_the_clock_is_right(
    ottla_broker: Broker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that takes no time over an hour ahead: the log says so, and the events are delivered
    with the right time later, without a restart."""
    clock.ahead_s = 2 * 3600.0

    async def run() -> None:
        wired = wiring(ottla_broker.bootstrap_servers, "ahead", 100)
        running = asyncio.create_task(run_agent(wired))
        async with asyncio.timeout(GIVE_UP_S):
            while not any("timestamp" in record.message.lower() for record in caplog.records):
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)
        clock.ahead_s = 0.0
        await delivered(wired, running, 100)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert numbers(ottla_broker.bootstrap_servers, "ahead") == list(range(100))


def test_a_command_is_started_again_whatever_the_clock_says(clock: Clock) -> None:
    """restartThrottle: a clock that is set back a year while the source waits does not make it wait
    for that year, nor does one that is set ahead and right again."""

    async def run() -> None:
        output = ExecOutput()
        source = ExecSource("r1", ["echo", "again"], restart=True, restart_throttle_ms=50)
        running = asyncio.create_task(source.run(output, {}))
        async with asyncio.timeout(GIVE_UP_S):
            for number, ahead_s in enumerate((-YEAR_S, YEAR_S, 0.0, 0.0)):
                while len(output.lines) <= number:
                    await asyncio.sleep(0.005)
                clock.ahead_s = ahead_s
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_a_file_is_idle_by_time_that_passes(clock: Clock, tmp_path: Path) -> None:
    """idleTimeout: a clock that is set a year ahead closes no file, one that is set back keeps none
    open; and what is written then arrives once."""

    async def run() -> None:
        log = tmp_path / "a.log"
        log.write_text("one\n")
        output, ticks = Collected(), Ticks()
        group = FileGroup.parse("f1", f"{tmp_path}/.*", {})
        options = TaildirOptions(
            [group], idle_timeout_ms=60_000, new_watcher=lambda _: ticks, clock=ticks.clock
        )
        source = TaildirSource("r1", options)
        async with Running(source, output):
            await ticks.caught_up()
            for ahead_s in (YEAR_S, -YEAR_S):
                clock.ahead_s = ahead_s
                ticks.now_s += 50.0
                append(log, "more\n")
                await ticks.caught_up()
                await ticks.caught_up()
                assert len(source._open) == 1
            ticks.now_s += 70.0
            await ticks.caught_up()
            assert not source._open
            append(log, "last\n")
            await ticks.caught_up()
        assert output.lines == ["one", "more", "more", "last"]

    asyncio.run(run())


def test_no_timer_asks_the_clock_that_can_be_set() -> None:
    """`time.time` and its kin are for what events and files say, in these modules alone; each has
    a reason."""
    allowed = {
        "escapes.py": "time escapes",
        "files/tail.py": "when a file was read, which outlives the process",
        "interceptors/headers.py": "the timestamp interceptor",
        "positions.py": "the time of a record",
        "sinks/file_roll.py": "the names of files",
        "sinks/kafka.py": "the time of a record",
        "sources/taildir.py": "files that are long gone, beside a clock that cannot be set",
        "supervisor.py": "what the status says",
        "syslog/messages.py": "the year, which RFC 3164 leaves out",
    }
    package = os.path.join(os.path.dirname(__file__), "..", "..", "src", "ottla", "agent")
    found = set()
    for directory, _, names in os.walk(package):
        for name in names:
            path = os.path.join(directory, name)
            if name.endswith(".py"):
                with open(path) as file:
                    text = file.read()
                if any(word in text for word in ("time.time", "datetime.now", "utcnow")):
                    found.add(os.path.relpath(path, package))
    assert found <= allowed.keys()
