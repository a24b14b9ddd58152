"""A broker that is away for long, while the memory channel is full."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ottla.agent import delivery as delivery_module
from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import Delivery
from ottla.agent.events import EventBatch, Position
from ottla.agent.output import SourceOutput
from ottla.agent.parts import Output
from ottla.agent.positions import PositionFile, SinkIdentity
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sources.seq import SequenceSource
from ottla.testing.broker import Broker
from tests.agent.reading import numbers
from tests.waiting import GIVE_UP_S

BEFORE = 100
EVENTS = 5_000
CAPACITY = 100
FAILURES = 6  # after which nothing more may pile up
# Minutes of Kafka's time-outs in a second.
IMPATIENT = {
    "bootstrap.timeout.ms": 100,
    "request.timeout.ms": 400,
    "delivery.timeout.ms": 400,
    "max.block.ms": 200,
    "linger.ms": 0,
}


class Interrupted:
    """Numbers; after the first ones it waits for `goes_on`."""

    replays = True
    name = "r1"

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        put = Passed(output)
        await SequenceSource("r1", 10, BEFORE).run(put, positions)
        await self.goes_on.wait()
        await SequenceSource("r1", 10, EVENTS).run(output, put.positions)


class Passed:
    """An output that knows the positions that went through."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.positions: dict[str, Position] = {}
        self.is_delivered = output.is_delivered

    async def put(self, batch: EventBatch) -> None:
        assert batch.position is not None
        await self.output.put(batch)
        self.positions[batch.position.stream] = batch.position


@pytest.mark.parametrize("once", [True, False], ids=["exactly-once", "at-least-once"])
def test_a_broker_that_is_away_for_many_time_outs(
    ottla_own_broker: Broker,
    tmp_path: Path,
    once: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every time-out of the client passes several times over. The source waits, neither threads nor
    events pile up, and when the broker is back each event arrives, in order, exactly once where
    that is promised."""
    monkeypatch.setattr(delivery_module, "PAUSE_MAX_S", 0.1)
    identity = SinkIdentity("here", "a1", "k1") if once else None
    options = {"bootstrap.servers": ottla_own_broker.bootstrap_servers, **IMPATIENT}
    sink = KafkaSink("k1", "numbers", options, identity)
    channel = MemoryChannel("c1", CAPACITY)
    delivery = Delivery(sink, channel, 25, PositionFile(tmp_path / "positions"))
    source = Interrupted()
    wiring = Wiring([(source, SourceOutput([channel], []), [channel])], [channel], [delivery])

    def failed() -> int:
        return delivery.counts.failures + delivery.counts.connect_failures

    async def until(enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(GIVE_UP_S):
            while not enough():
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)

    async def scenario() -> None:
        nonlocal running
        running = asyncio.create_task(run_agent(wiring, until_drained=True))
        await until(lambda: delivery.counts.delivered >= BEFORE)
        await asyncio.to_thread(ottla_own_broker.kill)
        source.goes_on.set()
        before = failed()
        await until(lambda: failed() >= before + FAILURES)
        threads = threading.active_count()
        put = channel.events_put
        await until(lambda: failed() >= before + 2 * FAILURES)
        assert channel.events_put == put  # the source waits
        assert threading.active_count() <= threads + 1
        await asyncio.to_thread(ottla_own_broker.start)
        async with asyncio.timeout(GIVE_UP_S):
            await running

    running: asyncio.Task[None]
    asyncio.run(scenario())
    found = numbers(ottla_own_broker.bootstrap_servers, "numbers")
    assert sorted(set(found)) == list(range(EVENTS))
    if once:
        assert found == list(range(EVENTS))
    assert "Trying again in" in caplog.text
