"""The `spooldir` source on real directories."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import cramjam
import pytest

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.events import Position
from ottla.agent.files.blob import BlobDecoder
from ottla.agent.files.spool import ConsumeOrder, SpoolRules
from ottla.agent.files.watching import PollingWatcher
from ottla.agent.output import SourceOutput
from ottla.agent.selectors import Replicating
from ottla.agent.sources.spooldir import SpoolDirectorySource, SpoolOptions
from tests.agent.files_harness import Collected, Running, append
from tests.waiting import GIVE_UP_S


def spool(
    folder: Path, rules: dict[str, Any] | None = None, **options: Any
) -> SpoolDirectorySource:
    return SpoolDirectorySource(
        "r1",
        SpoolOptions(
            SpoolRules(str(folder), **(rules or {})),
            new_watcher=lambda _: PollingWatcher(0.01),
            **options,
        ),
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(0.01)


def read_all(source: SpoolDirectorySource, output: Collected, done: Any) -> None:
    """Runs the source until something holds."""

    async def run() -> None:
        async with Running(source, output):
            await until(done)

    asyncio.run(run())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_files_are_read_and_renamed(tmp_path: Path) -> None:
    """The oldest first; hidden, ignored and completed files stay; a last line needs no newline."""
    for age, name in enumerate(("c", "b", "a", "b.tmp", ".hidden", "old.COMPLETED")):
        append(tmp_path / name, f"{name} 1\n{name} 2")
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    (tmp_path / "inside").mkdir()
    append(tmp_path / "inside" / "d", "d\n")
    output = Collected()
    source = spool(
        tmp_path, {"ignore": re.compile(r".*\.tmp")}, file_header="file", basename_header="name"
    )
    read_all(source, output, lambda: (tmp_path / "a.COMPLETED").exists())
    assert output.lines == ["c 1", "c 2", "b 1", "b 2", "a 1", "a 2"]
    assert output.batches[0].headers == {"file": str(tmp_path / "c"), "name": "c"}
    expected = ["a.COMPLETED", "b.COMPLETED", "b.tmp", "c.COMPLETED", "inside", "old.COMPLETED"]
    assert names(tmp_path) == expected
    assert output.positions == {}  # forgotten: the files are done


def test_a_file_is_marked_when_it_is_delivered(tmp_path: Path) -> None:
    """Read is not enough: until sinks have all of it, a restart must find it."""
    append(tmp_path / "a", "one\n")

    async def run() -> None:
        output = Collected()
        output.delivers = False
        async with Running(spool(tmp_path, {"delete": True}), output):
            await output.until(lambda: output.lines == ["one"])
            append(tmp_path / "b", "two\n")
            await output.until(lambda: len(output.lines) == 2)
            assert names(tmp_path) == ["a", "b"]
            output.delivers = True
            await until(lambda: not names(tmp_path))

    asyncio.run(run())


def test_a_restart_continues_inside_a_file(tmp_path: Path) -> None:
    """Behind what was delivered; a file of which all was delivered is only marked."""
    append(tmp_path / "a", "one\ntwo\nthree\n")
    first = Collected()
    first.delivers = False
    read_all(spool(tmp_path, batch_size=1), first, lambda: len(first.lines) == 3)
    for delivered, rest in ((1, ["two", "three"]), (3, [])):
        position = first.batches[delivered - 1].position
        assert position is not None
        second = Collected({position.stream: position})
        read_all(spool(tmp_path), second, lambda: (tmp_path / "a.COMPLETED").exists())
        assert second.lines == rest
        (tmp_path / "a.COMPLETED").rename(tmp_path / "a")
    gone = Collected(first.positions)
    (tmp_path / "a").unlink()
    read_all(spool(tmp_path), gone, lambda: not gone.positions)


def test_tracker_files_instead_of_renaming(tmp_path: Path) -> None:
    """`trackingPolicy = tracker_dir` leaves the files as they are, in directories inside too."""
    tracker = tmp_path / ".flumespool"
    (tmp_path / "inside").mkdir()
    append(tmp_path / "inside" / "a", "one\n")
    rules = {"tracker_directory": str(tracker), "recursive": True}
    output = Collected()
    read_all(spool(tmp_path, rules), output, (tracker / "inside" / "a.COMPLETED").exists)
    append(tmp_path / "b", "two\n")
    read_all(spool(tmp_path, rules), output, (tracker / "b.COMPLETED").exists)
    assert output.lines == ["one", "two"]
    assert (tmp_path / "inside" / "a").exists()


class Held(NamedTuple):
    channel: MemoryChannel
    positions: dict[str, Position]


def test_delivered_by_a_sink_of_each_channel() -> None:
    """Sinks of one channel share the events; those of another channel have their own."""
    one, other = MemoryChannel("c1", 10, 100), MemoryChannel("c2", 10, 100)
    output = SourceOutput([one, other], [])
    ahead = {"r1/x": Position("r1/x", 5)}
    output.deliveries = [Held(one, {}), Held(one, ahead), Held(other, {})]
    assert not output.is_delivered("r1/x", 5)
    output.deliveries = [Held(one, {}), Held(one, ahead), Held(other, ahead)]
    assert output.is_delivered("r1/x", 5)
    assert not output.is_delivered("r1/x", 6)
    assert not output.is_delivered("r1/y", 1)
    optional = Replicating({"c1": one, "c2": other}, [], ["c2"])
    optional.deliveries = [Held(one, ahead), Held(other, {})]
    assert optional.is_delivered("r1/x", 5)  # an optional channel may have missed it


def test_consume_order(tmp_path: Path) -> None:
    """Files of one age are read by name, whichever end of time comes first."""
    for name, age in (("b", 1), ("a", 1), ("c", 2)):
        append(tmp_path / name, f"{name}\n")
        os.utime(tmp_path / name, (age, age))
    for order, expected in ((ConsumeOrder.OLDEST, "abc"), (ConsumeOrder.YOUNGEST, "cab")):
        files, _ = SpoolRules(str(tmp_path), order=order).find()
        assert "".join(os.path.basename(found.path) for found in files) == expected


def test_a_file_that_changes_ends_the_source(tmp_path: Path) -> None:
    """With Flume's sentence, and nothing is renamed: such files break what spooling relies on."""
    append(tmp_path / "a", "one\n")

    async def run(source: SpoolDirectorySource) -> None:
        output = Collected()
        output.delivers = False
        async with Running(source, output):
            await output.until(lambda: output.lines)
            append(tmp_path / "a", "more\n")
            output.delivers = True
            await until(lambda: source.failure)

    source = spool(tmp_path)
    asyncio.run(run(source))
    assert source.failure == f"File has changed size since being read: {tmp_path / 'a'}"
    assert names(tmp_path) == ["a"]


def test_a_name_that_is_used_again_ends_the_source(tmp_path: Path) -> None:
    """A file of this name was completed before; renaming would destroy it."""
    append(tmp_path / "a", "one\n")
    append(tmp_path / "a.COMPLETED", "before\n")
    source = spool(tmp_path)
    read_all(source, Collected(), lambda: source.failure)
    assert source.failure
    assert "File name has been re-used with different files" in source.failure
    missing = spool(tmp_path / "nowhere")
    read_all(missing, Collected(), lambda: missing.failure)
    assert missing.failure == f"Directory does not exist: {tmp_path / 'nowhere'}"


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_files_and_blobs(tmp_path: Path, suffix: str) -> None:
    """Lines of a compressed file are those before compression; a blob is the file as it is."""
    data = b"one\ntwo\n" * 10_000
    packed = gzip.compress(data) if suffix == "gz" else bytes(cramjam.zstd.compress(data))
    (tmp_path / f"a.{suffix}").write_bytes(packed)
    output = Collected()
    done = tmp_path / f"a.{suffix}.COMPLETED"
    read_all(spool(tmp_path), output, done.exists)
    assert output.lines == ["one", "two"] * 10_000
    done.rename(tmp_path / f"a.{suffix}")
    blob = Collected()
    read_all(spool(tmp_path, new_decoder=BlobDecoder, decompress=False), blob, done.exists)
    assert [body for batch in blob.batches for body in batch.bodies] == [packed]
