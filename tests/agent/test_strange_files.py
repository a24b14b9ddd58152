"""Files that are not as expected: cut short, still being written, far larger than they look, or no
files at all."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from ottla.agent.config.description import ConfigError
from ottla.agent.files.compressed import CHUNK_BYTES, CompressedContent, new_decompressor, unpacked
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.opening import PROBED_FILES_MAX, files_max, open_if_same
from ottla.agent.sources.taildir import OPEN_FILES_MAX, TaildirOptions, TaildirSource
from ottla.agent.status import printable

from .files_harness import Collected, Running, Ticks, append
from .net_harness import made_pem_file, source_of
from .test_spooldir import names, read_all, spool

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def test_where_few_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are read, fewer at a time; before, with `ulimit -n 64`, the agent opened all it could,
    had no descriptor left for its broker or its socket, and most files were never read."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert (files_max(OPEN_FILES_MAX), files_max(PROBED_FILES_MAX)) == (25, 6)
    for number in range(40):
        append(tmp_path / f"{number}.log", f"{number}\n")
    ticks = Ticks()
    group = FileGroup.parse("f1", f"{tmp_path}/.*", {})
    source = TaildirSource(
        "r1", TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock)
    )

    async def run() -> list[str]:
        output = Collected()
        async with Running(source, output):
            await ticks.caught_up()
        return output.lines

    assert sorted(map(int, asyncio.run(run()))) == list(range(40))
    assert source.open_most == 25
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 64))
    assert files_max(OPEN_FILES_MAX) == OPEN_FILES_MAX


def test_a_file_that_cannot_be_read_is_said_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried with each listing, four times a second where inotify is not there."""

    def refused(name: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(os, "open", refused)
    for _ in range(3):
        assert open_if_same(str(tmp_path / "a"), 0, 0) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'a'} cannot be read: Permission denied"
    ]


def test_a_name_that_is_not_utf8_can_be_shown() -> None:
    """Before, `ottla agent status` ended with a traceback."""
    assert printable(os.fsdecode(b"/a/\xfc.log")) == "/a/\\xfc.log"
    assert printable("/a/ü.log") == "/a/ü.log"


@pytest.mark.parametrize("suffix", sorted(PACK))
def test_a_few_bytes_that_become_many_come_in_pieces(suffix: str) -> None:
    """No piece is larger than CHUNK_BYTES: 4 KB of bzip2 can become gigabytes, which were in memory
    at once before."""
    data = bytes(8 * 1024 * 1024) + b"end"
    pieces = list(unpacked(new_decompressor(f"a.{suffix}"), PACK[suffix](data)))
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert b"".join(pieces) == data


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_that_is_being_written(tmp_path: Path, suffix: str) -> None:
    """Its lines come as they are whole, each as one: before, the line at which it ended for now was
    cut in two, or what came later was not read."""
    lines = [f"{number} {os.urandom(20).hex()}" for number in range(10_000)]
    data = "\n".join(lines).encode()
    packed = gzip.compress(data) if suffix == "gz" else bytes(cramjam.zstd.compress(data))
    path = tmp_path / f"a.{suffix}"
    ticks = Ticks()
    group = FileGroup.parse("f1", f"{tmp_path}/a.*", {})
    options = TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock)

    async def run() -> list[str]:
        output = Collected()
        path.write_bytes(b"")
        async with Running(TaildirSource("r1", options), output):
            for end in (len(packed) // 3, len(packed) - 5, len(packed)):
                with path.open("ab") as file:
                    file.write(packed[path.stat().st_size : end])
                await ticks.caught_up()
                assert output.lines == lines[: len(output.lines)]
        return output.lines

    assert asyncio.run(run()) == lines


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_short_is_not_taken_for_whole(
    tmp_path: Path, suffix: str
) -> None:
    """A spooling directory's source ends with a sentence, and the file is not marked; before, it
    was, and what was missing was never missed."""
    data = b"".join(
        b"%d %s\n" % (number, os.urandom(20).hex().encode()) for number in range(10_000)
    )
    packed = gzip.compress(data) if suffix == "gz" else bytes(cramjam.zstd.compress(data))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(packed[: len(packed) // 2])
    source, output = spool(tmp_path), Collected()
    read_all(source, output, lambda: source.failure)
    assert "is cut short or damaged" in str(source.failure)
    assert names(tmp_path) == [path.name]
    assert output.lines == data.decode().splitlines()[: len(output.lines)]
    with path.open("ab") as file:
        file.write(packed[len(packed) // 2 :])
    read_all(spool(tmp_path), output, lambda: names(tmp_path) == [f"{path.name}.COMPLETED"])
    assert output.lines == data.decode().splitlines()


def test_an_empty_compressed_file_is_whole(tmp_path: Path) -> None:
    """It has no event, and is marked."""
    for suffix in ("gz", "zst", "bz2"):
        (tmp_path / f"a.{suffix}").touch()
    output = Collected()
    read_all(spool(tmp_path), output, lambda: all(n.endswith("COMPLETED") for n in names(tmp_path)))
    assert output.lines == []


def test_a_file_that_cannot_be_marked_ends_the_source_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory became read-only, or its disk is full: a sentence, and the other sources go on;
    before, the agent ended."""
    append(tmp_path / "a", "one\n")

    def refused(one: str, other: str) -> None:
        raise PermissionError(13, "Permission denied", one, None, other)

    monkeypatch.setattr(os, "rename", refused)
    source, output = spool(tmp_path), Collected()
    read_all(source, output, lambda: source.failure)
    assert "Permission denied" in str(source.failure)
    assert output.lines == ["one"]


@pytest.mark.parametrize("name", ["a.log", "a.log.gz", "a.log.zst"])
def test_a_fifo_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """What was a file when it was listed is opened without waiting for a writer."""
    path = tmp_path / name
    os.mkfifo(path)
    assert open_if_same(str(path), 0, 0) is None
    seen = path.stat()
    content = open_if_same(str(path), seen.st_dev, seen.st_ino)
    if content is not None:
        assert content.pread(10, 0) == b"" if isinstance(content, CompressedContent) else True
        content.close()


def test_a_certificate_that_cannot_be_used_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    """One that is not there, and a key with a password that nobody gave: before, the first ended an
    agent that read its file again, and for the second OpenSSL asked at the terminal."""
    pem_file = "keystore-type = PEM"
    lines = ("type = http", "bind = 127.0.0.1", "port = 0", "ssl = true", pem_file)
    with pytest.raises(ConfigError, match=r"\(http\) cannot be made: .*none.pem: No such file"):
        source_of(*lines, f"keystore = {tmp_path}/none.pem")
    pem = made_pem_file(tmp_path)
    key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(
        ["openssl", *key, "-aes256", "-pass", "pass:secret", "-out", str(pem)],
        check=True,
        capture_output=True,
    )
    with pem.open("ab") as out:
        out.write((tmp_path / "certificate.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"\(http\) cannot be made"):
        source_of(*lines, f"keystore = {pem}")
