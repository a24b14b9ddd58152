"""What is not in the page cache is read in a thread before it is sent: nobody else waits for it."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.seams.disk import RealDisk
from ottla.seams.page_cache import is_cached, pages_cached
from ottla.server.read_ahead import READ_AHEAD_BYTES
from tests.server.fake import MemoryFile, answer, file_answer, frame
from tests.server.harness import running_server

SIZE = 3 * READ_AHEAD_BYTES


class ColdFile(MemoryFile):
    """A file of which nothing is cached before it was read ahead."""

    path = "cold"

    def __init__(self) -> None:
        super().__init__(bytes(range(256)) * (SIZE // 256))
        self.cached_to = 0
        self.refused: OSError | None = None

    def is_cached(self, position: int, size: int) -> bool:
        return position + size <= self.cached_to

    def reading_ahead(self, position: int, size: int) -> Callable[[], None]:
        if self.refused is not None:
            raise self.refused

        def work() -> None:
            self.cached_to = position + size

        return work


class Waiting:
    """Background work that ends when the test lets it."""

    def __init__(self) -> None:
        self.work: list[tuple[asyncio.Future[None], Callable[..., Any]]] = []

    def thread(self, fn: Callable[..., Any], *_: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.work.append((future, fn))
        return future

    def finish(self, error: OSError | None = None) -> None:
        future, fn = self.work.pop(0)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(fn())


def test_others_are_served_while_one_waits_for_the_device() -> None:
    """The answer goes on piece by piece, as pieces are read, and arrives whole."""

    async def run() -> None:
        background = Waiting()
        async with running_server(background=background) as running:  # type: ignore[arg-type]
            behind, other = await running.client(), await running.client()
            await behind.ask(b"pcold")
            await running.until(lambda: len(running.script.seen) == 1)
            file = ColdFile()
            running.script.settle(b"cold", file_answer(b"", file, 0, SIZE, b"end"))
            await running.until(lambda: bool(background.work))
            await other.ask(b"ehello")
            assert await other.answers(1) == [b"hello"]
            receiving = asyncio.create_task(behind.exactly(4 + SIZE + 3))
            pieces = 0
            while not receiving.done():
                await asyncio.sleep(0.002)
                if background.work:
                    pieces += 1
                    background.finish()
            assert (await receiving)[4:] == file.data + b"end"
            assert pieces == 3

    asyncio.run(run())


@pytest.mark.parametrize("failure", ["when it begins", "in the thread"])
def test_what_cannot_be_read_ahead_is_sent_all_the_same(failure: str) -> None:
    """Sending tells what is wrong with a file, if anything is."""

    async def run() -> None:
        background = Waiting()
        async with running_server(background=background) as running:  # type: ignore[arg-type]
            client = await running.client()
            await client.ask(b"pcold")
            await running.until(lambda: len(running.script.seen) == 1)
            file = ColdFile()
            if failure == "when it begins":
                file.refused = OSError("no descriptor is free")
            running.script.settle(b"cold", file_answer(b"", file, 0, READ_AHEAD_BYTES, b""))
            if failure == "in the thread":
                await running.until(lambda: bool(background.work))
                background.finish(OSError("the device failed"))
            assert len(await client.exactly(READ_AHEAD_BYTES)) == READ_AHEAD_BYTES

    asyncio.run(run())


class AskedFile(MemoryFile):
    """Counts the questions whether it is cached."""

    questions = 0

    def is_cached(self, position: int, size: int) -> bool:
        self.questions += 1
        return True


@pytest.mark.parametrize("pauses", [False, True])
def test_the_cache_is_asked_again_for_a_reader_that_pauses(
    pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes all it can get is asked for once in ten turns, however small the parts."""
    monkeypatch.setattr("ottla.server.connection.CACHED_S", -1.0 if pauses else 1e9)

    async def run() -> None:
        async with running_server(background=Waiting()) as running:  # type: ignore[arg-type]
            client, file = await running.client(), AskedFile(bytes(SIZE))
            await client.ask(b"pwarm")
            await running.until(lambda: len(running.script.seen) == 1)
            running.script.settle(b"warm", file_answer(b"", file, 0, SIZE, b""))
            assert len(await client.exactly(4 + SIZE)) == 4 + SIZE
            assert (file.questions > SIZE // READ_AHEAD_BYTES) == pauses

    asyncio.run(run())


def test_a_client_that_goes_meanwhile_is_forgotten() -> None:
    """Nothing is sent to it when the bytes are there."""

    async def run() -> None:
        background = Waiting()
        async with running_server(background=background) as running:  # type: ignore[arg-type]
            client = await running.client()
            await client.ask(b"pcold")
            await running.until(lambda: len(running.script.seen) == 1)
            running.script.settle(b"cold", file_answer(b"", ColdFile(), 0, SIZE, b""))
            await running.until(lambda: bool(background.work))
            client.close()
            await running.until(lambda: not running.server.connections)
            background.finish()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_answers_behind_it_keep_their_order() -> None:
    """Requests that came after the cold one are answered after it."""

    async def run() -> None:
        background = Waiting()
        async with running_server(background=background) as running:  # type: ignore[arg-type]
            client = await running.client()
            client.socket.sendall(frame(b"pcold") + frame(b"elater"))
            await running.until(lambda: len(running.script.seen) == 2)
            file = ColdFile()
            running.script.settle(b"cold", file_answer(b"", file, 0, 100_000, b""))
            await running.until(lambda: bool(background.work))
            background.finish()
            assert await client.exactly(4 + 100_000) == b"\x00\x01\x86\xa0" + file.data[:100_000]
            assert await client.exactly(9) == bytes(answer(b"later"))

    asyncio.run(run())


def test_a_file_is_in_the_page_cache_after_it_was_read_ahead(tmp_path: Path) -> None:
    """And before, where the system has dropped it and says so."""
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1024 * 1024) + bytes(16 * 1024 * 1024))
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    found = RealDisk().open(str(path))
    before = found.is_cached(0, 1024 * 1024)
    work = found.reading_ahead(0, 1024 * 1024)
    work()
    assert found.is_cached(0, 1024 * 1024)
    descriptor = found.fileno()
    assert descriptor is not None
    assert is_cached(descriptor, 0, 1024 * 1024)
    assert not before or is_cached(descriptor, 2 * 1024 * 1024, 1)


@pytest.mark.skipif(pages_cached() is None, reason="this kernel does not count cached pages")
def test_a_missing_page_is_noticed(tmp_path: Path) -> None:
    """Memory that is short takes single pages of a segment, whose neighbours stay."""
    path, page = tmp_path / "log", mmap.PAGESIZE
    with open(path, "wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(page))
            os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 9 * page, page, os.POSIX_FADV_DONTNEED)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert is_cached(descriptor, 0, 9 * page)
        assert is_cached(descriptor, 10 * page, 54 * page)
        assert not is_cached(descriptor, 10, 64 * page - 10)
        assert not is_cached(descriptor, 9 * page, 1)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("on_its_way", [0, SIZE - 1])
def test_a_page_on_its_way_from_the_device_is_not_there(
    on_its_way: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted all the same. The kernel reads ahead of a reader: what is asked for may begin
    in that, or end in it, and sending it would wait."""
    path, preadv = tmp_path / "log", os.preadv
    path.write_bytes(bytes(SIZE))

    def reading(descriptor: int, buffers: Any, position: int, flags: int) -> int:
        if position == on_its_way:
            raise BlockingIOError
        return preadv(descriptor, buffers, position, flags)

    with open(path, "rb") as file:
        assert is_cached(file.fileno(), 0, SIZE)
        monkeypatch.setattr(os, "preadv", reading)
        assert not is_cached(file.fileno(), 0, SIZE)


def test_where_the_kernel_does_not_count_a_byte_of_each_piece_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 6.5 have no cachestat."""
    monkeypatch.setattr("ottla.seams.page_cache.pages_cached", lambda: None)
    test_a_file_is_in_the_page_cache_after_it_was_read_ahead(tmp_path)


def test_a_count_is_not_believed_that_misses_what_was_just_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems that keep the pages with a file below theirs count none of their own."""
    monkeypatch.setattr("ottla.seams.page_cache.pages_cached", lambda: lambda *_: 0)
    test_a_file_is_in_the_page_cache_after_it_was_read_ahead(tmp_path)


def test_a_file_system_that_cannot_say_what_is_cached_counts_as_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers: overlayfs counts no pages and cannot read without waiting. Otherwise all that
    is sent would be read in a thread before, again and again."""
    path = tmp_path / "log"
    path.write_bytes(bytes(SIZE))

    def cannot(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "preadv", cannot)
    monkeypatch.setattr("ottla.seams.page_cache.pages_cached", lambda: lambda *_: 0)
    with open(path, "rb") as file:
        assert is_cached(file.fileno(), 0, SIZE)


def test_where_the_system_cannot_tell_all_counts_as_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS, old kernels and some file systems: then it is as without reading ahead."""
    monkeypatch.setattr("ottla.seams.page_cache._NO_WAIT", None)
    assert is_cached(-1, 0, 10)


def test_reading_once_leaves_the_page_cache_as_it_was(tmp_path: Path) -> None:
    """What was there stays, what was not is gone again, where the system can tell."""
    path = tmp_path / "log"
    content = os.urandom(1024 * 1024)
    path.write_bytes(content)
    found = RealDisk().open(str(path))
    descriptor = found.fileno()
    assert descriptor is not None
    assert found.reading_once(0, len(content))() == content
    assert is_cached(descriptor, 0, len(content))
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    before = is_cached(descriptor, 0, len(content))
    assert found.reading_once(0, len(content))() == content
    assert is_cached(descriptor, 0, len(content)) == before
