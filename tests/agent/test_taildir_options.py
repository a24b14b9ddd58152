"""The options of `TAILDIR`: where it begins, which headers events get, which files it takes."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import cramjam
import pytest

from ottla.agent.files.forgetting import FORGET_AFTER_S, GONE_S
from ottla.agent.files.lines import LineDecoder, LongLines
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.opening import PROBED_FILES_MAX
from ottla.agent.sources.taildir import OPEN_FILES_MAX, TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, Ticks, append
from tests.needs import LONG


def source_with(ticks: Ticks, folder: Path, pattern: str = "a.*", **options: Any) -> TaildirSource:
    group = FileGroup.parse("f1", f"{folder}/{pattern}", {})
    return TaildirSource(
        "r1",
        TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock, **options),
    )


def read_all(
    folder: Path, output: Collected, pattern: str = "a.*", **options: Any
) -> TaildirSource:
    """One run over the files as they are."""
    ticks = Ticks()
    source = source_with(ticks, folder, pattern, **options)

    async def run() -> None:
        async with Running(source, output):
            await ticks.caught_up()

    asyncio.run(run())
    return source


def test_flumes_position_file_is_taken_over(tmp_path: Path) -> None:
    """The first start continues where Flume was, in a renamed file too; later ones do not ask."""
    for name in ("a1", "a2", "a3", "a4"):
        append(tmp_path / name, "one\ntwo\n")
    held: list[dict[str, object]] = [
        {"inode": (tmp_path / "a1").stat().st_ino, "pos": 4, "file": str(tmp_path / "a1")},
        {"inode": (tmp_path / "a2").stat().st_ino, "pos": 8, "file": str(tmp_path / "old")},
        # Inside a line of what is another file: not believed.
        {"inode": (tmp_path / "a3").stat().st_ino, "pos": 6, "file": str(tmp_path / "old")},
        {"inode": 1, "pos": 8, "file": str(tmp_path / "gone")},
    ]
    positions = tmp_path / "taildir_position.json"
    positions.write_text(json.dumps(held))
    output = Collected()
    read_all(tmp_path, output, position_file=str(positions))
    assert sorted(output.lines) == ["one", "one", "two", "two", "two"]
    positions.unlink()
    again = Collected(output.positions)
    append(tmp_path / "a2", "three\n")
    read_all(tmp_path, again, position_file=str(positions))
    assert again.lines == ["three"]


@pytest.mark.parametrize("text", ["", "{}", "[{}]", "nonsense"])
def test_a_position_file_that_is_none_is_left(tmp_path: Path, text: str) -> None:
    """All is read from the beginning then, as Flume does."""
    append(tmp_path / "a", "one\n")
    (tmp_path / "positions").write_text(text)
    output = Collected()
    read_all(tmp_path, output, position_file=str(tmp_path / "positions"))
    assert output.lines == ["one"]


def test_skip_to_end_is_remembered(tmp_path: Path) -> None:
    """What is written while the agent is down is read, though nothing was before."""
    append(tmp_path / "a", "one\n")
    output = Collected()
    read_all(tmp_path, output, skip_to_end=True)
    assert output.lines == []
    append(tmp_path / "a", "two\n")
    read_all(tmp_path, output, skip_to_end=True)
    assert output.lines == ["two"]


def test_headers_of_file_and_offset(tmp_path: Path) -> None:
    """`fileHeader` has the path, `byteOffsetHeader` where each line begins."""
    append(tmp_path / "a", "one\ntwo\nthree\n")
    output = Collected()
    read_all(tmp_path, output, file_header="file", byte_offset_header=True, batch_size=2)
    headers = [batch.headers_of(index) for batch in output.batches for index in range(len(batch))]
    path = str(tmp_path / "a")
    assert headers == [{"file": path, "byteoffset": offset} for offset in ("0", "4", "8")]
    assert [len(batch) for batch in output.batches] == [2, 1]


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    """Two links and the file are read once; writes to the file are noticed through its folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    append(elsewhere / "real", "one\n")
    (tmp_path / "a1").symlink_to(elsewhere / "real")
    (tmp_path / "a2").symlink_to(elsewhere / "real")
    (tmp_path / "a3").symlink_to(tmp_path / "nowhere")
    group = FileGroup.parse("f1", f"{tmp_path}/a.*", {})

    async def run() -> list[str]:
        output = Collected()
        async with Running(TaildirSource("r1", TaildirOptions([group])), output):
            await output.until(lambda: output.lines)
            append(elsewhere / "real", "two\n")
            await output.until(lambda: len(output.lines) == 2)
        return output.lines

    assert asyncio.run(run()) == ["one", "two"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_copy_gives_what_was_not_read(tmp_path: Path, suffix: str) -> None:
    """The rest is read from it, a last line without a newline too; then it is not read again."""
    log = tmp_path / "a.log"
    append(log, "one\n")
    output = Collected()
    read_all(tmp_path, output)
    data = b"one\ntwo\nthree"
    packed = gzip.compress(data) if suffix == "gz" else bytes(cramjam.zstd.compress(data))
    (tmp_path / f"a.log.1.{suffix}").write_bytes(packed)
    log.unlink()
    for _ in range(2):
        read_all(tmp_path, output)
    assert output.lines == ["one", "two", "three"]


@pytest.mark.parametrize("rotated", ["a.log.1", "a.log.1.gz"])
@pytest.mark.parametrize("lines", [40, 1000])
def test_a_copy_shorter_than_what_was_read_is_not_read_again(
    tmp_path: Path, rotated: str, lines: int
) -> None:
    """copytruncate copies, the writer writes, the agent reads, and then the log is emptied; also
    when that is found after a restart. A file that begins alike and goes on otherwise is read."""
    log, written = tmp_path / "a.log", [f"line {number}\n" for number in range(lines)]
    append(log, "".join(written))
    output = Collected()
    read_all(tmp_path, output)
    copy = "".join(written[: lines * 2 // 3]).encode()
    (tmp_path / rotated).write_bytes(gzip.compress(copy) if rotated.endswith("gz") else copy)
    log.write_text("after\n")
    append(tmp_path / "a.log.2", "".join(written[: lines // 3]) + "other\n" * (lines // 3))
    output.batches.clear()
    read_all(tmp_path, output)
    assert len(output.lines) == 1 + lines // 3 * 2
    assert output.lines.count("after") == 1
    output.batches.clear()
    read_all(tmp_path, output)
    assert output.lines == []


def test_a_line_is_completed_hours_later(tmp_path: Path) -> None:
    """Its file was closed as idle, and the agent was restarted meanwhile: it is one event."""
    log = tmp_path / "a.log"
    output = Collected()
    for text in "a line that ", "was begun ", "and ended\n":
        ticks = Ticks()
        group = FileGroup.parse("f1", f"{tmp_path}/a.*", {})
        options = TaildirOptions([group], new_watcher=lambda _, t=ticks: t, clock=ticks.clock)
        source = TaildirSource("r1", options)

        async def run(source: TaildirSource, text: str, ticks: Ticks) -> None:
            async with Running(source, output):
                await ticks.caught_up()
                append(log, text)
                await ticks.caught_up()
                assert source._open
                ticks.now_s += 3 * 3600
                await ticks.caught_up()
                assert not source._open

        asyncio.run(run(source, text, ticks))
    assert output.lines == ["a line that was begun and ended"]


@pytest.mark.parametrize("policy", [LongLines.CUT, LongLines.DROP])
def test_a_line_of_100_mb(
    tmp_path: Path, policy: LongLines, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cut or dropped as asked for, counted and logged; the lines around it are whole, bytes
    that are not UTF-8 too."""
    with (tmp_path / "a").open("wb") as file:
        file.write(b"first\n")
        file.truncate(100_000_000)  # a hole, which is read as zeros
        file.seek(0, os.SEEK_END)
        file.write(b"\n\xff\xfelast\n")
    output = Collected()
    source = read_all(tmp_path, output, new_decoder=lambda at: LineDecoder(at, 1000, policy))
    bodies = [body for batch in output.batches for body in batch.bodies]
    cut = [bytes(1000)] if policy is LongLines.CUT else []
    assert bodies == [b"first", *cut, b"\xff\xfelast"]
    assert source.counters.long_lines == 1
    assert "1 lines over the limit" in caplog.text


# On a busy machine it is making them that takes long.
FILES = 10_000 if LONG else 1_000


def test_many_files_in_one_directory(tmp_path: Path) -> None:
    """Each is read once, in a process that may open far fewer; also by the next process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(os.listdir("/dev/fd")) + OPEN_FILES_MAX + PROBED_FILES_MAX + 20
    assert most < FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        read_many_files(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def read_many_files(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(FILES):
        descriptor = os.open(folder / f"a{number}", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b"%d\n" % number)
        os.close(descriptor)
    output = Collected()
    source = read_all(folder, output)
    assert sorted(map(int, output.lines)) == list(range(FILES))
    assert source.open_most <= OPEN_FILES_MAX < FILES
    append(folder / "a77", "more\n")
    output.batches.clear()
    read_all(folder, output)
    assert output.lines == ["more"]


async def hours_pass(ticks: Ticks, hours: float) -> None:
    ticks.now_s += hours * 3600
    await ticks.caught_up()


def test_files_that_are_long_gone_are_forgotten(tmp_path: Path) -> None:
    """Their positions leave the sinks; one that is there stays, however old it is. One that was not
    there just now, as before its file system is mounted, stays too: before, all of it was read
    again."""
    for name in ("a1", "a2", "a3"):
        append(tmp_path / name, f"{name}\n")
    output = Collected()
    read_all(tmp_path, output)
    (tmp_path / "a2").unlink()
    (tmp_path / "a3").rename(tmp_path / "not-mounted")
    long_ago = int(time.time()) - FORGET_AFTER_S - 60
    for stream, position in output.positions.items():
        facts = {**position.facts, "read_at_s": long_ago}
        output.positions[stream] = position._replace(facts=facts)
    ticks = Ticks()
    source = source_with(ticks, tmp_path)

    async def run() -> None:
        async with Running(source, output):
            await ticks.caught_up()
            await hours_pass(ticks, GONE_S / 3600 - 1)
            assert len(output.positions) == 3
            (tmp_path / "not-mounted").rename(tmp_path / "a3")
            await ticks.caught_up()
            await hours_pass(ticks, 2)

    output.batches.clear()
    asyncio.run(run())
    assert output.lines == []
    left = {str(position.facts["path"]) for position in output.positions.values()}
    assert left == {str(tmp_path / "a1"), str(tmp_path / "a3")}


def test_a_clock_that_is_set_ahead_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year ahead: what was read just before is not old. Its copy that comes later is known."""
    append(tmp_path / "a1", "one\n" * 500)
    output, ticks = Collected(), Ticks()
    source = source_with(ticks, tmp_path)

    async def run() -> None:
        async with Running(source, output):
            await ticks.caught_up()
            ahead_s = time.time() + 365 * 24 * 3600
            monkeypatch.setattr(time, "time", lambda: ahead_s)
            (tmp_path / "a1").rename(tmp_path / "hidden")
            for _ in range(3):
                await hours_pass(ticks, GONE_S / 3600)
            assert len(output.positions) == 1
            (tmp_path / "a1.copy").write_bytes((tmp_path / "hidden").read_bytes())
            (tmp_path / "hidden").unlink()
            for _ in range(3):
                await hours_pass(ticks, 0.01)

    asyncio.run(run())
    assert len(output.lines) == 500
