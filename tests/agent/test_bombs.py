"""Compressed files of a few bytes that become gigabytes: bounded memory, and nobody waits."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import logging
import lzma
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest

from ottla.agent.files import compressed
from ottla.agent.files.compressed import CompressedContent, new_decompressor, unpacked
from ottla.agent.files.lines import LineDecoder
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.opening import open_if_same
from ottla.agent.files.tail import BLOCK_BYTES
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource

from .files_harness import Collected, Running, Ticks, append
from .test_strange_files import read_all, spool

MIB = 1024 * 1024


def zstd_bomb(size: int) -> bytes:
    """A frame of blocks that are one byte repeated: 4 bytes for 128 KiB (RFC 8878, 3.1.1.2)."""
    block = 128 * 1024
    blocks = size // block
    made = bytearray(struct.pack("<IBB", 0xFD2FB528, 0, 0x38))  # a window of 128 KiB
    for number in range(blocks):
        last = number == blocks - 1
        made += struct.pack("<I", block << 3 | 1 << 1 | last)[:3] + b"x"
    return bytes(made)


def bomb_of(suffix: str, size: int) -> bytes:
    if suffix == "zst":
        return zstd_bomb(size)
    return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[suffix](b"x" * size)


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2"])
def test_memory_is_bounded(tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    """Before, a `.zst` file was unpacked into a temporary file at once, which fills the disk. What
    is no log is said, once."""
    path = tmp_path / f"a.{suffix}"
    size = 64 * MIB
    path.write_bytes(bomb_of(suffix, size))
    content = CompressedContent(str(path))
    tracemalloc.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed, "BOMB_BYTES_MIN", size // 2)
        assert content.size() == size
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content.complete
    assert peak < 3 * 128 * 1024 * compressed.ZSTD_INPUT_BYTES // 4  # of 128 KiB for 4 bytes
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "nobody's log does that. It is read on, in pieces" in said[0]
    content.close()


def test_frames_and_pieces_of_zstd() -> None:
    """Frames one after the other, and bytes that come in any pieces."""
    data = bytes(range(256)) * 2000
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.compress(data)
    assert b"".join(unpacked(new_decompressor("a.zst"), packed)) == data
    path = "two.zst"
    decompressor = new_decompressor(path)
    first = b"".join(unpacked(decompressor, packed + packed[:9]))
    assert (first, decompressor.unused_data) == (data, packed[:9])


@pytest.mark.parametrize("suffix", ["gz", "zst", "xz"])
def test_a_listing_does_not_wait_for_it(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each new compressed file was unpacked to its end for its size, while all others
    waited."""
    (tmp_path / f"b.log.1.{suffix}").write_bytes(bomb_of(suffix, 8 * MIB))
    append(tmp_path / "b.log", "x" * 2000 + "\n")
    append(tmp_path / "a.log", "one\n")
    furthest: list[int] = []
    real = CompressedContent.pread

    def noted(self: CompressedContent, length: int, offset: int) -> bytes:
        found = real(self, length, offset)
        furthest.append(self._base + len(self._held))
        return found

    monkeypatch.setattr(CompressedContent, "pread", noted)
    ticks = Ticks()
    group = FileGroup.parse("f1", f"{tmp_path}/.*", {})
    source = TaildirSource(
        "r1", TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock)
    )

    async def run() -> None:
        output = Collected()
        async with Running(source, output):
            await output.until(lambda: len(output.lines) >= 2)
            assert max(furthest) < 4 * MIB

    asyncio.run(run())


def test_others_go_on_while_one_is_read(tmp_path: Path) -> None:
    """A line without an end gives no event to wait for: before, nothing else ran meanwhile."""
    (tmp_path / "a.gz").write_bytes(bomb_of("gz", 16 * MIB))
    source = spool(tmp_path)
    decoder = LineDecoder()
    source.options.new_decoder = lambda position: decoder

    async def run() -> int:
        seen = set()
        output = Collected()
        async with Running(source, output):
            while not output.lines:
                await asyncio.sleep(0)
                seen.add(decoder.read_to)
        assert [len(line) for line in output.lines] == [1_000_000]
        return len(seen)

    assert asyncio.run(run()) >= 16 * MIB // BLOCK_BYTES


def test_a_file_that_asks_for_too_much_memory(tmp_path: Path) -> None:
    """A dictionary of 1 GiB is refused, and the reason said; the file is not marked."""
    packed = bytearray(lzma.compress(b"one\n", format=lzma.FORMAT_ALONE))
    packed[1:5] = struct.pack("<I", 1 << 30)
    path = tmp_path / "a.xz"
    path.write_bytes(packed)
    source = spool(tmp_path)
    read_all(source, Collected(), lambda: source.failure)
    assert "a.xz is cut short or damaged (Memory usage limit exceeded)" in str(source.failure)
    assert path.exists()


def test_without_the_zstandard_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sentence says what to install."""
    path = tmp_path / "a.zst"
    path.write_bytes(zstd_bomb(MIB))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    seen = path.stat()
    with caplog.at_level(logging.WARNING):
        assert open_if_same(str(path), seen.st_dev, seen.st_ino) is None
    assert "a.zst cannot be read: needs the package zstandard: pip install" in caplog.text
