"""The local engine: the conformance suite, and what is its own (files, crashes, damage)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ottla.metadata_store.local import LocalEngine, LocalTree
from ottla.metadata_store.tree import ConnectionLoss, CorruptTree, Create, NoNode, Set, Tree
from ottla.seams.background import InlineBackground, RealBackground
from ottla.seams.disk import RealDisk
from tests.metadata_store.conformance import TreeConformance


@contextmanager
def real_background() -> Iterator[RealBackground]:
    background = RealBackground(asyncio.get_running_loop())
    try:
        yield background
    finally:
        background.close()


class TestLocal(TreeConformance):
    """The conformance suite on SQLite, with real threads."""

    @asynccontextmanager
    async def sessions(self, directory: Path) -> AsyncIterator[tuple[Tree, Tree]]:
        with real_background() as background:
            engine = await LocalEngine.open(RealDisk(), str(directory / "tree.db"), background)
            yield await engine.connect(), await engine.connect()
            await engine.close()

    async def expire(self, tree: Tree) -> None:
        assert isinstance(tree, LocalTree)
        await tree.expire()


async def opened(path: Path) -> LocalTree:
    return await LocalTree.open(RealDisk(), str(path), InlineBackground())


def test_a_closed_tree_keeps_what_it_had(tmp_path: Path) -> None:
    """Nodes, versions and write numbers are there after a restart; sessions are new ones."""

    async def main() -> None:
        tree = await opened(tmp_path / "t")
        await tree.create("/a", b"1")
        await tree.set("/a", b"2")
        stat, session = await tree.exists("/a"), tree.session
        await tree.close()
        again = await opened(tmp_path / "t")
        assert await again.get("/a") == (b"2", stat)
        assert again.session > session
        await again.create("/b")
        later = await again.exists("/b")
        assert later is not None
        assert stat is not None
        assert later.created > stat.modified
        await again.close()

    asyncio.run(main())


def test_every_commit_is_synced(tmp_path: Path) -> None:
    """WAL with synchronous=FULL: what is answered survives a power loss."""

    async def main() -> None:
        tree = await opened(tmp_path / "t")
        execute = tree._engine.store.connection.execute
        assert execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert execute("PRAGMA synchronous").fetchone() == (2,)
        await tree.close()

    asyncio.run(main())


def test_a_killed_process_leaves_no_ephemeral_nodes(tmp_path: Path) -> None:
    """What was committed is there after a crash, but for the nodes of the dead session."""

    async def main() -> None:
        tree = await opened(tmp_path / "t")
        await tree.create("/ids")
        await tree.create("/ids/1", b"", ephemeral=True)
        # No close: the file is opened again as it would be after a kill.
        again = await opened(tmp_path / "t")
        assert await again.exists("/ids/1") is None
        assert await again.children("/ids") == []
        await again.create("/ids/1", b"", ephemeral=True)
        await again.close()

    asyncio.run(main())


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    """CorruptTree names the file and says what to do, instead of SQLite's own error."""
    path = tmp_path / "t"
    path.write_bytes(b"not a database at all, but long enough to be looked at " * 100)
    with pytest.raises(CorruptTree) as raised:
        asyncio.run(opened(path))
    message = str(raised.value)
    assert str(path) in message
    assert "damaged" in message
    assert "backup" in message
    assert "\n" not in message


def test_a_cut_file_is_one_sentence(tmp_path: Path) -> None:
    """A database that lost its end is refused when it is opened or read, never half believed."""

    async def fill() -> None:
        tree = await opened(tmp_path / "t")
        await tree.multi([Create(f"/n{i}", b"x" * 500) for i in range(500)])
        await tree.close()

    async def look() -> None:
        tree = await opened(tmp_path / "t")
        await tree.subtree("/")

    asyncio.run(fill())
    path = tmp_path / "t"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorruptTree):
        asyncio.run(look())


def test_a_flipped_bit_in_a_value_is_noticed(tmp_path: Path) -> None:
    """The checksum of a row catches what SQLite cannot."""

    async def fill() -> None:
        tree = await opened(tmp_path / "t")
        await tree.create("/state", b'{"leader_epoch":41}')
        await tree.close()

    async def look() -> None:
        tree = await opened(tmp_path / "t")
        await tree.get("/state")

    asyncio.run(fill())
    path = tmp_path / "t"
    content = path.read_bytes()
    assert b'"leader_epoch":41' in content
    path.write_bytes(content.replace(b'"leader_epoch":41', b'"leader_epoch":51'))
    with pytest.raises(CorruptTree, match="/state does not match its checksum"):
        asyncio.run(look())


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    """A schema that this version does not know is not touched."""
    connection = sqlite3.connect(tmp_path / "t")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorruptTree, match="schema 99"):
        asyncio.run(opened(tmp_path / "t"))


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    """A folder in its place, or no folder to be in: ConnectionLoss says so."""
    with pytest.raises(ConnectionLoss, match=r"cannot be opened|failed: unable to open"):
        asyncio.run(opened(tmp_path))
    with pytest.raises(ConnectionLoss, match=r"cannot be opened|failed: unable to open"):
        asyncio.run(opened(tmp_path / "none" / "t"))


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A write that does not fit raises ConnectionLoss, is not there, and the next one works."""

    async def main() -> None:
        tree = await opened(tmp_path / "t")
        await tree.create("/a", b"1")
        connection = tree._engine.store.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ConnectionLoss, match="full"):
            await tree.multi([Set("/a", b"2"), Create("/b", bytes(100_000))])
        assert (await tree.get("/a"))[0] == b"1"
        connection.execute(f"PRAGMA max_page_count = {pages + 1_000}")
        await tree.multi([Set("/a", b"2"), Create("/b", bytes(100_000))])
        assert (await tree.get("/a"))[0] == b"2"
        await tree.close()

    asyncio.run(main())


def test_a_full_disk_does_not_hinder_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A session that cannot be ended is named in a line, and cleared away by the next start."""

    async def main() -> None:
        tree = await opened(tmp_path / "t")
        await tree.create("/mine", b"1", ephemeral=True)
        connection = tree._engine.store.connection
        connection.execute("PRAGMA query_only = ON")  # every write fails
        await tree.close()
        again = await opened(tmp_path / "t")
        assert await again.children("/") == []
        await again.close()

    asyncio.run(main())
    assert "the next start clears this session away" in caplog.text


def test_a_cancelled_caller_does_not_disturb_the_order(tmp_path: Path) -> None:
    """The write of a caller that went away takes place whole, before the next operation."""

    async def main() -> None:
        with real_background() as background:
            tree = await LocalTree.open(RealDisk(), str(tmp_path / "t"), background)
            write = asyncio.ensure_future(
                tree.multi([Create(f"/n{i}", b"x") for i in range(1_000)])
            )
            await asyncio.sleep(0.001)
            write.cancel()
            names = await tree.children("/")
            assert len(names) in (0, 1_000)
            with pytest.raises(asyncio.CancelledError):
                await write
            with pytest.raises(NoNode):
                await tree.get("/nowhere")
            await tree.close()

    asyncio.run(main())
