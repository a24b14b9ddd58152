"""The file channel: what was put is there after a crash; what the disk damaged is counted.

The model is a source that can read again from a position, and a sink that keeps what it got and its
positions together, as a transaction does. Both outlive a crash of the channel, as does a random
part of what was written and not synced.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ottla.agent.channels import segments as segments_module
from ottla.agent.channels.file import FileChannel
from ottla.agent.channels.frames import FRAME_MAGIC
from ottla.agent.events import EventBatch, Position
from ottla.agent.parts import PartError

STREAM = "r1/numbers"


def channel_in(directory: Path, **options: int) -> FileChannel:
    kept = {"minimum_space_bytes": 0, "segment_bytes": 2000, **options}
    data = [directory / "data1", directory / "data2"]
    return FileChannel("c1", directory / "checkpoint", data, **kept)


def numbered(first: int, count: int) -> EventBatch:
    """A batch with headers, of the numbers from `first` on."""
    return EventBatch(
        [b"%d" % number for number in range(first, first + count)],
        {"host": "web1"},
        None if first % 2 else [{"n": str(number)} for number in range(count)],
        Position(STREAM, first + count, {"inode": 7}),
        range(first + 1, first + count + 1),
    )


class Sink:
    """What arrived, and the positions that came with it."""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.positions: dict[str, Position] = {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            assert batch.position is not None
            held = self.positions.get(batch.position.stream)
            rest = batch if held is None else batch.beyond(held.offset)
            if rest is not None:
                self.bodies += [int(body) for body in rest.bodies]
                for position in (rest.position, rest.source_position):
                    if position is not None:
                        self.positions[position.stream] = position


async def crash(channel: FileChannel) -> None:
    """The process is gone: no close, and the threads are idle."""
    for task in channel._tasks:
        task.cancel()
    await asyncio.gather(*channel._tasks, return_exceptions=True)
    channel._disk.shutdown()
    channel._reader.shutdown()
    channel.unlock()
    channel.segments.close()


async def feed(
    channel: FileChannel, positions: Mapping[str, Position], total: int, chance: random.Random
) -> None:
    """The source: reads on from its position."""
    first = positions[STREAM].offset if STREAM in positions else 0
    while first < total:
        count = min(chance.randrange(0, 9), total - first)
        await channel.put(numbered(first, count))
        first += count


async def drain(channel: FileChannel, sink: Sink, total: int, chance: random.Random) -> None:
    """The sink takes a few times, delivers and commits; sometimes one of these does not happen."""
    for _ in range(chance.randrange(1, 25)):
        if sink.positions.get(STREAM, Position(STREAM, 0)).offset >= total:
            return
        taken = await channel.take(chance.randrange(1, 20))
        if chance.random() < 0.2:
            channel.roll_back(taken)
            continue
        sink.deliver(taken)
        if chance.random() < 0.9:
            channel.commit(taken)


async def one_life(directory: Path, sink: Sink, total: int, chance: random.Random) -> FileChannel:
    """From a start to a crash, or to the end of the numbers."""
    channel = channel_in(directory, capacity=chance.choice([10, 1000]))
    delivered = sink.positions
    positions = await channel.start(delivered)
    tasks = [
        asyncio.create_task(feed(channel, positions, total, chance)),
        asyncio.create_task(drain(channel, sink, total, chance)),
    ]
    await tasks[1]
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
    if chance.random() < 0.3:
        await channel._write_checkpoint()
    await crash(channel)
    return channel


def tear(directory: Path, chance: random.Random) -> None:
    """Bytes behind the last frame that was synced: a write that the crash cut off."""
    newest = max(directory.glob("data*/*.channel"), key=lambda path: path.name, default=None)
    if newest is not None:
        with newest.open("ab") as file:
            file.write((FRAME_MAGIC + os.urandom(40))[: chance.randrange(1, 40)])


@pytest.mark.parametrize("seed", range(6))
def test_crashes_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """However often it crashes, and whatever tail a crash leaves, each number arrives once."""
    chance = random.Random(seed)
    sink, total = Sink(), 1500
    lives = 0
    while len(sink.bodies) < total:
        channel = asyncio.run(one_life(tmp_path, sink, total, chance))
        assert channel.events_lost == 0
        tear(tmp_path, chance)
        lives += 1
        assert lives < 500
    assert sink.bodies == list(range(total))
    assert lives > 2


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_counted_and_nothing_else_is_lost(tmp_path: Path, seed: int) -> None:
    """A flipped bit or a file cut short, between two lives: no number arrives twice, and those
    that are missing were counted."""
    chance = random.Random(seed)
    sink, total, counted = Sink(), 1500, 0
    damaged = False
    for _ in range(500):
        if sink.positions.get(STREAM, Position(STREAM, 0)).offset >= total:
            break
        counted += asyncio.run(one_life(tmp_path, sink, total, chance)).events_lost
        files = sorted(tmp_path.glob("data*/*.channel"))
        if files and len(sink.bodies) > 100 and not damaged:
            damaged = True
            path = chance.choice(files)
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at] ^= 1 << chance.randrange(8)
            else:
                del data[at:]
            path.write_bytes(data)
    assert sink.bodies == sorted(set(sink.bodies))
    missing = total - len(sink.bodies)
    assert counted >= missing
    assert damaged


def test_a_channel_holds_its_batches_over_a_restart(tmp_path: Path) -> None:
    """Bodies, headers of all and of each, in order; and where the source continues."""

    async def scenario() -> None:
        channel = channel_in(tmp_path)
        assert await channel.start({}) == {}
        await channel.put(numbered(0, 3))
        await channel.put(numbered(3, 2))
        await channel.close()
        again = channel_in(tmp_path)
        positions = await again.start({})
        assert positions == {STREAM: Position(STREAM, 5, {"inode": 7})}
        first, second = await again.take(100)
        assert (first.bodies, second.bodies) == ([b"0", b"1", b"2"], [b"3", b"4"])
        assert first.headers_of(1) == {"host": "web1", "n": "1"}
        assert second.headers_of(1) == {"host": "web1"}
        assert second.position == Position(again.stream, 5)
        assert second.source_position == Position(STREAM, 5, {"inode": 7})
        again.commit([first, second])
        await again.close()
        third = channel_in(tmp_path)
        assert await third.start({}) == positions
        assert third.events == 0
        await third.close()

    asyncio.run(scenario())


def test_an_event_that_cannot_be_read_again_is_synced_when_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync serves all that wait."""
    syncs = []
    real = os.fdatasync
    monkeypatch.setattr(segments_module.os, "fdatasync", lambda fd: (syncs.append(fd), real(fd)))

    async def scenario() -> None:
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start({})
        await asyncio.gather(*(channel.put(EventBatch([b"%d" % n])) for n in range(50)))
        assert 1 <= len(syncs) <= 3
        await crash(channel)
        again = channel_in(tmp_path)
        await again.start({})
        found = await again.take(100)
        assert [int(one.bodies[0]) for one in found] == list(range(50))
        await again.close()

    asyncio.run(scenario())


def test_a_disk_that_fails_makes_the_source_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not synced is written again into another segment, once the disk works."""
    monkeypatch.setattr("ottla.agent.channels.file.PAUSE_S", 0.01)
    failures = iter([True, False, True])
    real = os.fdatasync

    def failing(descriptor: int) -> None:
        if next(failures, False):
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(segments_module.os, "fdatasync", failing)

    async def scenario() -> None:
        channel = channel_in(tmp_path)
        await channel.start({})
        for number in range(3):
            await channel.put(EventBatch([b"%d" % number]))
        await crash(channel)
        again = channel_in(tmp_path)
        await again.start({})
        found = await again.take(100)
        assert [int(one.bodies[0]) for one in found] == [0, 1, 2]
        assert again.events_lost == 0
        await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("call", ["open", "writev", "fsync", "fdatasync"])
def test_a_disk_that_is_full_for_long_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Each try begins a segment, and takes it back; before, each left a file and a descriptor,
    until the process had no more of them. It is said once a minute."""
    monkeypatch.setattr("ottla.agent.channels.file.PAUSE_S", 0.0)
    tries = iter(range(50))
    real = getattr(os, call)

    def failing(*arguments: object) -> object:
        if next(tries, None) is not None:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    async def scenario() -> None:
        channel = channel_in(tmp_path)
        await channel.start({})
        descriptors = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(segments_module.os, call, failing)
        await channel.put(EventBatch([b"0"]))
        assert next(tries, None) is None
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert len(channel.segments.segments) == 1
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
        assert len([*tmp_path.glob("data*/*.channel")]) == 1
        [found] = await channel.take(100)
        assert found.bodies == [b"0"]
        await channel.close()

    asyncio.run(scenario())


def test_a_segment_that_cannot_be_deleted_is_closed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try does not close the number again, which is another file's or socket's by then."""

    async def scenario() -> None:
        channel = channel_in(tmp_path, segment_bytes=100)
        await channel.start({})
        for number in range(4):
            await channel.put(EventBatch([b"%d" % number]))
        taken = await channel.take(100)

        def refused(path: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(segments_module.os, "unlink", refused)
            channel.commit(taken)
            await channel._write_checkpoint()
        others = [os.open(tmp_path, os.O_RDONLY) for _ in range(10)]
        await channel._write_checkpoint()
        for descriptor in others:
            os.close(descriptor)  # raises if it was closed
        assert len([*tmp_path.glob("data*/*.channel")]) == 1
        await channel.close()

    asyncio.run(scenario())


def test_a_directory_has_one_channel(tmp_path: Path) -> None:
    """Another one that is given it by mistake is refused, as in Flume; before, it set the segments
    of the first aside, with all that was in them."""

    async def scenario() -> None:
        first = channel_in(tmp_path)
        await first.start({})
        await first.put(EventBatch([b"0"]))
        other = FileChannel("c2", tmp_path / "other", [tmp_path / "data1"])
        with pytest.raises(PartError, match=r"another channel.*data1\nTry: checkpointDir"):
            await other.start({})
        await other.close()
        [found] = await first.take(10)
        assert found.bodies == [b"0"]
        await first.close()
        again = channel_in(tmp_path)
        await again.start({})
        await again.close()

    asyncio.run(scenario())


def test_consumed_segments_are_deleted(tmp_path: Path) -> None:
    """The disk holds what waits, not what was."""

    async def scenario() -> None:
        channel = channel_in(tmp_path)
        await channel.start({})
        for first in range(0, 3000, 10):
            await channel.put(numbered(first, 10))
            if first % 500 == 490:
                taken = await channel.take(10_000)
                channel.commit(taken)
                await channel._write_checkpoint()
        while channel.events:
            channel.commit(await channel.take(10_000))
        await channel._write_checkpoint()
        assert len(list(tmp_path.glob("data*/*.channel"))) <= 1
        await channel.close()

    asyncio.run(scenario())


def test_a_channel_whose_files_were_deleted_is_another_stream(tmp_path: Path) -> None:
    """Its numbers begin anew, and a sink that knew the old ones does not skip the new events."""

    async def scenario() -> None:
        sink = Sink()
        for place in ("one", "two"):
            channel = channel_in(tmp_path / place)
            await channel.start(sink.positions)
            await channel.put(EventBatch([b"1", b"2"]))
            sink.deliver(await channel.take(10))
            await channel.close()
        assert sink.bodies == [1, 2, 1, 2]

    asyncio.run(scenario())


def test_a_damaged_checkpoint_reads_all_again(tmp_path: Path) -> None:
    """The sink's own position says what it has; the damaged file is set aside."""

    async def scenario() -> None:
        sink = Sink()
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start({})
        for first in range(0, 50, 10):
            await channel.put(numbered(first, 10))
        while channel.events > 20:
            taken = await channel.take(10)
            sink.deliver(taken)
            channel.commit(taken)
        await channel.close()
        path = tmp_path / "checkpoint" / "checkpoint.json"
        path.write_bytes(path.read_bytes().replace(b"consumed", b"consumer"))
        again = channel_in(tmp_path)
        positions = await again.start(sink.positions)
        assert positions[STREAM].offset == 50
        while again.events:
            sink.deliver(await again.take(100))
        assert sink.bodies == list(range(50))
        assert len(list(path.parent.glob("*.damaged-*"))) == 1
        await again.close()

    asyncio.run(scenario())


def test_new_events_get_numbers_that_the_sink_does_not_know(tmp_path: Path) -> None:
    """A file that was cut short holds less than the sink has: numbers do not begin again below
    that, or new events would be skipped as delivered."""

    async def scenario() -> None:
        sink = Sink()
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start({})
        for first in range(0, 50, 10):
            await channel.put(numbered(first, 10))
        while len(sink.bodies) < 40:
            sink.deliver(await channel.take(10))
        await crash(channel)
        [path] = tmp_path.glob("data*/*.channel")
        os.truncate(path, path.stat().st_size // 2)
        again = channel_in(tmp_path)
        positions = await again.start(sink.positions)
        assert positions[STREAM].offset == 40
        for first in range(40, 60, 10):
            await again.put(numbered(first, 10))
        while len(sink.bodies) < 60:
            sink.deliver(await again.take(10))
        assert sink.bodies == list(range(60))
        await again.close()

    asyncio.run(scenario())


def test_a_start_without_the_sinks_position_skips_no_event(tmp_path: Path) -> None:
    """The sink is away: what it has is not known, and may be more than a damaged file. Events get
    numbers beyond all it can have; nothing counts as lost that was not, in a third life either."""

    async def life(sink: Sink, first: int, damage: bool, takes: bool) -> None:
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start(None if first else {})
        assert channel.events_lost == 0
        for number in range(first, first + 50, 10):
            await channel.put(EventBatch([b"%d" % each for each in range(number, number + 10)]))
        while takes and len(sink.bodies) < first + 50:
            batches = await channel.take(10)
            sink.deliver(batches)
        await crash(channel)
        if damage:
            [path] = tmp_path.glob("data*/*.channel")
            os.truncate(path, path.stat().st_size // 2)

    sink = Sink()
    asyncio.run(life(sink, 0, damage=True, takes=True))
    asyncio.run(life(sink, 50, damage=False, takes=False))
    asyncio.run(life(sink, 100, damage=False, takes=True))
    assert sink.bodies == list(range(150))


def test_damage_while_it_runs_is_counted_and_the_file_set_aside(tmp_path: Path) -> None:
    """A frame that was whole at the start and is read later."""

    async def scenario() -> None:
        channel = channel_in(tmp_path, segment_bytes=1 << 20)
        await channel.start({})
        for first in range(0, 30, 10):
            await channel.put(numbered(first, 10))
        await channel.close()
        again = channel_in(tmp_path)
        await again.start({})
        [path] = tmp_path.glob("data*/*.channel")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        taken = await again.take(100)
        assert [one.bodies[0] for one in taken] == [b"0", b"20"]
        assert again.events_lost == 10
        again.commit(taken)
        await again.put(numbered(30, 10))
        again.commit(await again.take(100))
        await again._write_checkpoint()
        assert len(list(tmp_path.glob("data*/*.damaged"))) == 1
        await again.close()

    asyncio.run(scenario())
