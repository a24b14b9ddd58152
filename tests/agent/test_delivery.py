"""From a channel to a sink: what is gathered, what a failure and a stop leave."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from ottla.agent import delivery
from ottla.agent.channels.file import FileChannel
from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import DELIVERY_EVENTS_MAX, TAKE_EVENTS_MIN, Delivery
from ottla.agent.events import EventBatch, Position
from ottla.agent.output import SourceOutput
from ottla.agent.parts import FencedError, Output, PreparingSink
from ottla.agent.positions import PositionFile
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sources.seq import SequenceSource

EVENTS = 5 * TAKE_EVENTS_MIN  # several deliveries


class FakeSink:
    """A preparing sink; `outcomes` are what deliveries raise, in order; None succeeds."""

    name = "fake"

    def __init__(
        self, *outcomes: Exception | None, keeps_positions: bool = False, blocked: bool = False
    ) -> None:
        self.keeps_positions = keeps_positions
        self.outcomes = list(outcomes)
        self.deliveries: list[list[bytes]] = []
        self.positions: dict[str, Position] = {}
        self.recoveries = 0
        self.may_go = threading.Event()
        if not blocked:
            self.may_go.set()
        self.delivering = threading.Event()
        self.stopped = False

    def start(self) -> Mapping[str, Position]:
        return dict(self.positions)

    def recover(self) -> Mapping[str, Position]:
        self.recoveries += 1
        return dict(self.positions)

    def prepare(self, batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
        return batches

    def deliver_prepared(self, prepared: Sequence[EventBatch]) -> None:
        self.delivering.set()
        self.may_go.wait()
        if self.stopped:
            raise RuntimeError("the sink was stopped")
        outcome = self.outcomes.pop(0) if self.outcomes else None
        unknown = isinstance(outcome, TimeoutError)  # it happened, but there was no answer
        if outcome is None or unknown:
            self.deliveries.append([body for batch in prepared for body in batch.bodies])
            for batch in prepared:
                if batch.position is not None:
                    self.positions[batch.position.stream] = batch.position
        if outcome is not None:
            raise outcome

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        self.deliver_prepared(self.prepare(batches))

    def stop(self) -> None:
        self.stopped = True
        self.may_go.set()

    @property
    def numbers(self) -> list[int]:
        return [int(body) for bodies in self.deliveries for body in bodies]


def wired(sink: FakeSink, total: int | None, batch_size: int = 10, **options: object) -> Wiring:
    channel = MemoryChannel("c1", 100)
    delivery = Delivery(sink, channel, 100, **options)  # type: ignore[arg-type]
    source = SequenceSource("r1", batch_size, total)
    return Wiring([(source, SourceOutput([channel], []), [channel])], [channel], [delivery])


def test_the_fake_is_a_preparing_sink() -> None:
    """So that these tests run what the Kafka sink runs."""
    assert isinstance(FakeSink(), PreparingSink)


@pytest.mark.parametrize("keeps_positions", [False, True])
def test_a_failed_delivery_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keeps_positions: bool
) -> None:
    """With the one that was prepared behind it, in order; nothing is dropped or doubled."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    sink = FakeSink(None, OSError("once"), OSError("twice"), None, keeps_positions=keeps_positions)
    file = PositionFile(tmp_path / "positions")
    made = wired(sink, EVENTS, positions_file=file, gather_s=0.0)
    asyncio.run(run_agent(made, until_drained=True))
    assert sink.numbers == list(range(EVENTS))
    assert sink.recoveries == 2


def test_a_failure_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a hint where an event is too large for the topic: it holds up the sink until somebody
    acts, because nothing is dropped."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    too_large = OSError("[MESSAGE_TOO_LARGE] The batch is larger than the server accepts.")
    sink = FakeSink(OSError(), too_large)
    asyncio.run(run_agent(wired(sink, 10, gather_s=0.0), until_drained=True))
    first, second = (record.message for record in caplog.records if "Trying" in record.message)
    assert first == "Sink fake: OSError. Trying again in 0.0 s"
    assert "server accepts. An event has more bytes than message.max.bytes" in second
    assert "(deserializer.maxLineLength). Trying again" in second


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("[INVALID_TOPIC_EXCEPTION] 'a b' is no name for a topic: 1 to 249", "allowTopicOverride"),
        ("topic 't' has no partition 77: it has 3", "Add partitions to the topic"),
        ("header p: a partition is a number (got 'x')", "Leave partitionIdHeader out"),
        ("[INVALID_TIMESTAMP] The timestamp is out of range", "message.timestamp.after.max.ms"),
    ],
)
def test_what_holds_up_a_sink_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words: str, hint: str
) -> None:
    """As Flume's, a sink tries an event that is refused until somebody acts; which is said."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    sink = FakeSink(OSError(words))
    asyncio.run(run_agent(wired(sink, 10, gather_s=0.0), until_drained=True))
    [said] = [record.message for record in caplog.records if "Trying" in record.message]
    assert hint in said


def test_a_part_that_does_not_end_in_order_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A disk that is full when a sink stops: the channel is closed, and the agent ends as asked."""

    class FullDisk(FakeSink):
        def stop(self) -> None:
            raise OSError(28, "No space left on device")

    wired_up = wired(FullDisk(), 10, gather_s=0.0)
    closed: list[str] = []

    async def close() -> None:
        closed.append("c1")

    wired_up.channels[0].close = close  # type: ignore[method-assign]
    asyncio.run(run_agent(wired_up, until_drained=True))
    assert closed == ["c1"]
    assert "Sink fake does not end in order: [Errno 28] No space left" in caplog.text


def test_a_channel_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when a process has no descriptor left for a file of the channel's; before, the agent
    ended."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    sink = FakeSink()
    wired_up = wired(sink, 100, gather_s=0.0)
    [channel] = wired_up.channels
    take, failures = channel.take, iter(range(3))

    async def failing(events_max: int, bytes_max: int = 1 << 20) -> list[EventBatch]:
        if next(failures, None) is not None:
            raise OSError(24, "Too many open files")
        return await take(events_max, bytes_max)

    monkeypatch.setattr(channel, "take", failing)
    asyncio.run(run_agent(wired_up, until_drained=True))
    assert sink.numbers == list(range(100))


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_batches_of_which_nothing_is_left_fill_a_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A filter that takes all, and a broker that is away: the source waits after so many; before,
    the channel grew as long as there was something to read."""
    for name in ("memory", "file"):
        monkeypatch.setattr(f"ottla.agent.channels.{name}.EMPTY_BATCHES_MAX", 5)

    async def run() -> None:
        channel: MemoryChannel | FileChannel = MemoryChannel("c1", 100)
        if kind == "file":
            channel = FileChannel("c1", tmp_path / "c", [tmp_path / "d"], minimum_space_bytes=0)
            await channel.start({})
        for offset in range(1, 6):
            await channel.put(EventBatch([], position=Position("r1/x", offset)))
        late = asyncio.create_task(channel.put(EventBatch([], position=Position("r1/x", 6))))
        await asyncio.sleep(0)
        assert not late.done()
        taken = await channel.take(100)
        await late
        channel.roll_back(taken)
        more = asyncio.create_task(channel.put(EventBatch([], position=Position("r1/x", 7))))
        await asyncio.sleep(0)
        assert not more.done()
        while not more.done():
            channel.commit(await channel.take(100))
            await asyncio.sleep(0)
        await channel.close()

    asyncio.run(run())


def test_an_unknown_outcome_is_looked_up_before_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions that the sink has after it recovered say what arrived."""
    monkeypatch.setattr("ottla.agent.delivery.PAUSE_MIN_S", 0.001)
    sink = FakeSink(None, TimeoutError("no answer"), None, keeps_positions=True)
    asyncio.run(run_agent(wired(sink, EVENTS, gather_s=0.0), until_drained=True))
    assert sink.numbers == list(range(EVENTS))
    assert sink.recoveries == 1


def test_a_fenced_sink_ends_the_agent() -> None:
    """Another process of the instance delivers."""
    sink = FakeSink(None, FencedError("another"), keeps_positions=True)
    with pytest.raises(FencedError, match="another"):
        asyncio.run(run_agent(wired(sink, None)))


def test_an_endless_source_of_small_events_does_not_hold_up_delivery() -> None:
    """What is gathered is bounded by time and number, not only by bytes."""

    async def scenario() -> None:
        sink = FakeSink(keeps_positions=True)
        running = asyncio.create_task(run_agent(wired(sink, None, gather_s=0.01)))
        while len(sink.deliveries) < 5:
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert max(map(len, sink.deliveries)) <= DELIVERY_EVENTS_MAX + 100
        assert sink.numbers == list(range(len(sink.numbers)))

    asyncio.run(scenario())


def test_a_stop_while_the_broker_is_away_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delivery under way is given up; what was taken is rolled back."""
    monkeypatch.setattr("ottla.agent.delivery.STOP_S", 0.05)
    monkeypatch.setattr("ottla.agent.runner.DRAIN_S", 0.05)

    async def scenario() -> None:
        sink = FakeSink(blocked=True, keeps_positions=True)
        made = wired(sink, None)
        running = asyncio.create_task(run_agent(made))
        await asyncio.to_thread(sink.delivering.wait)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert sink.stopped
        assert sink.numbers == []
        assert made.channels[0].events > 0  # type: ignore[attr-defined]

    asyncio.run(scenario())


class Once:
    """A source that cannot read again: puts a few events and waits."""

    name = "r1"
    replays = False

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        for number in range(50):
            await output.put(EventBatch([b"%d" % number]))
        await asyncio.Event().wait()


def test_a_stop_delivers_what_is_in_the_channel() -> None:
    """Events that cannot be read again are not left in memory."""

    async def scenario() -> None:
        sink = FakeSink(blocked=True)
        channel = MemoryChannel("c1", 100)
        delivery = Delivery(sink, channel, 100)
        made = Wiring([(Once(), SourceOutput([channel], []), [channel])], [channel], [delivery])
        running = asyncio.create_task(run_agent(made))
        await asyncio.to_thread(sink.delivering.wait)
        while channel.events_put < 50:
            await asyncio.sleep(0)
        running.cancel()
        sink.may_go.set()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert sink.numbers == list(range(50))

    asyncio.run(scenario())


def test_positions_that_cannot_be_written_deliver_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk: what was delivered is noted as soon as it can be, and delivered once. Before,
    each try doubled it."""
    monkeypatch.setattr(delivery, "NOTE_AGAIN_S", 0.0)
    file = PositionFile(tmp_path / "positions")
    tries: list[int] = []
    write = file.write

    def failing(positions: Iterable[Position]) -> None:
        tries.append(1)
        if len(tries) in (1, 2, 3):
            raise OSError(28, "No space left on device")
        write(positions)

    monkeypatch.setattr(file, "write", failing)
    sink = FakeSink()

    async def run() -> None:
        channel = MemoryChannel("c1", 1000, 1 << 20)
        made = Delivery(sink, channel, 10, file)
        await made.start()
        running = asyncio.create_task(made.run())
        await channel.put(EventBatch([b"x"], position=Position("s/a", 1), ends=[1]))
        await made.delivered.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.stop()

    asyncio.run(run())
    assert sink.deliveries == [[b"x"]]
    assert PositionFile(tmp_path / "positions").open()["s/a"].offset == 1
    said = [record for record in caplog.records if "cannot be noted" in record.getMessage()]
    assert len(said) == 1
