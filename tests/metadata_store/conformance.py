"""What every engine of the metadata tree must do, written against the interface alone.

An engine's test file subclasses `TreeConformance` and says how to open two sessions on one empty
tree; see test_local.py. The claims are ZooKeeper's promises. Engines with a connection that can be
lost are put through `lossy_conformance.py` too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from ottla.metadata_store.tree import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    MULTI_BYTES_MAX,
    PATH_BYTES_MAX,
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    Set,
    TooLarge,
    Tree,
)

Scene = Callable[[Tree, Tree], Awaitable[None]]


class TreeConformance:
    """Subclass me, and give `sessions`."""

    def sessions(self, directory: Path) -> AbstractAsyncContextManager[tuple[Tree, Tree]]:
        """Two sessions on one empty tree."""
        raise NotImplementedError

    async def expire(self, tree: Tree) -> None:
        """End a session as a lost connection would."""
        raise NotImplementedError

    @pytest.fixture
    def play(self, tmp_path: Path) -> Callable[[Scene], None]:
        """Runs a scene with two sessions."""

        def run(scene: Scene) -> None:
            async def main() -> None:
                async with self.sessions(tmp_path) as (tree, other):
                    await asyncio.wait_for(scene(tree, other), 30)

            asyncio.run(main())

        return run

    def test_what_is_created_is_read(self, play: Callable[[Scene], None]) -> None:
        """A created node has its data and version 0, for every session."""

        async def scene(tree: Tree, other: Tree) -> None:
            assert await tree.create("/a", b"one") == "/a"
            data, stat = await other.get("/a")
            assert (data, stat.version, stat.ephemeral_owner, stat.child_count) == (b"one", 0, 0, 0)
            assert await other.exists("/b") is None

        play(scene)

    def test_creation_needs_a_parent_and_a_free_name(self, play: Callable[[Scene], None]) -> None:
        """NoNode without a parent, NodeExists for a name that is taken; nothing is changed."""

        async def scene(tree: Tree, other: Tree) -> None:
            with pytest.raises(NoNode):
                await tree.create("/a/b", b"")
            await tree.create("/a", b"old")
            with pytest.raises(NodeExists):
                await tree.create("/a", b"new")
            assert (await tree.get("/a"))[0] == b"old"

        play(scene)

    def test_set_raises_the_version_by_one(self, play: Callable[[Scene], None]) -> None:
        """Each set raises the version; an outdated one is refused with BadVersion."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a", b"0")
            assert await tree.set("/a", b"1", 0) == 1
            assert await other.set("/a", b"2", 1) == 2
            with pytest.raises(BadVersion):
                await tree.set("/a", b"x", 1)
            assert await tree.set("/a", b"3") == 3
            assert await tree.get("/a") == (b"3", (await tree.exists("/a")))
            with pytest.raises(NoNode):
                await tree.set("/b", b"")

        play(scene)

    def test_delete_wants_the_version_and_no_children(self, play: Callable[[Scene], None]) -> None:
        """BadVersion, NotEmpty, NoNode; otherwise the node is gone and may come again at 0."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a")
            await tree.create("/a/b")
            await tree.set("/a", b"x")
            with pytest.raises(NotEmpty):
                await tree.delete("/a")
            with pytest.raises(BadVersion):
                await tree.delete("/a", 0)
            await tree.delete("/a/b")
            with pytest.raises(BadVersion):
                await tree.delete("/a", 0)
            await tree.delete("/a", 1)
            with pytest.raises(NoNode):
                await tree.delete("/a")
            await tree.create("/a")
            assert (await tree.get("/a"))[1].version == 0

        play(scene)

    def test_children_are_sorted_names(self, play: Callable[[Scene], None]) -> None:
        """Only those right below, by name; NoNode for one that is not there; the root has some."""

        async def scene(tree: Tree, other: Tree) -> None:
            for path in ("/t", "/t/b", "/t/a", "/t/a/deep", "/tt"):
                await tree.create(path)
            assert await other.children("/t") == ["a", "b"]
            assert await other.children("/t/b") == []
            assert {"t", "tt"} <= set(await other.children("/"))
            with pytest.raises(NoNode):
                await other.children("/nowhere")

        play(scene)

    def test_subtree_is_the_node_and_all_below(self, play: Callable[[Scene], None]) -> None:
        """And nothing beside it whose name only starts alike."""

        async def scene(tree: Tree, other: Tree) -> None:
            for path in ("/t", "/t/a", "/t/a/b", "/t-x", "/t0", "/t/a-b"):
                await tree.create(path, path.encode())
            await tree.set("/t/a/b", b"new")
            found = await other.subtree("/t")
            assert found == {
                "/t": (b"/t", 0),
                "/t/a": (b"/t/a", 0),
                "/t/a-b": (b"/t/a-b", 0),
                "/t/a/b": (b"new", 1),
            }
            assert await other.subtree("/nowhere") == {}
            assert set(await other.subtree("/")) >= {"/", "/t-x", "/t/a/b"}

        play(scene)

    def test_many_are_read_at_a_time(self, play: Callable[[Scene], None]) -> None:
        """Data and versions by path; those that are not there are left out."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.multi([Create("/t"), *(Create(f"/t/{i}", b"%d" % i) for i in range(500))])
            await tree.set("/t/7", b"new")
            await other.sync()
            found = await other.get_many(["/nowhere", *(f"/t/{i}" for i in range(500)), "/t/500"])
            assert len(found) == 500
            assert found["/t/8"] == (b"8", 0)
            assert found["/t/7"] == (b"new", 1)
            assert await other.get_many([]) == {}

        play(scene)

    def test_multi_is_all_or_nothing(self, play: Callable[[Scene], None]) -> None:
        """Results in order when all succeed; when one fails, none has happened."""

        async def scene(tree: Tree, other: Tree) -> None:
            results = await tree.multi(
                [
                    Create("/a", b"0"),
                    Create("/a/b"),
                    Set("/a", b"1"),
                    Check("/a", 1),
                    Delete("/a/b"),
                ]
            )
            assert results == ["/a", "/a/b", 1, None, None]
            with pytest.raises(NodeExists):
                await tree.multi([Set("/a", b"2"), Create("/c"), Delete("/a"), Create("/c")])
            assert (await other.get("/a"))[0] == b"1"
            assert await other.exists("/c") is None
            assert await tree.multi([]) == []

        play(scene)

    def test_a_check_fences(self, play: Callable[[Scene], None]) -> None:
        """A multi with a check of another version does nothing; BadVersion names the path."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/epoch", b"1")
            await tree.multi([Check("/epoch", 0), Create("/a")])
            await other.set("/epoch", b"2", 0)
            with pytest.raises(BadVersion) as raised:
                await tree.multi([Check("/epoch", 0), Create("/b")])
            assert raised.value.path == "/epoch"
            assert await tree.exists("/b") is None
            with pytest.raises(NoNode):
                await tree.multi([Check("/nowhere"), Create("/b")])

        play(scene)

    def test_a_multi_over_a_megabyte_is_refused(self, play: Callable[[Scene], None]) -> None:
        """TooLarge, also for one node, and nothing is written; just below it is taken."""

        async def scene(tree: Tree, other: Tree) -> None:
            half = bytes(MULTI_BYTES_MAX // 2)
            with pytest.raises(TooLarge):
                await tree.multi([Create("/a", half), Create("/b", half)])
            assert await other.exists("/a") is None
            with pytest.raises(TooLarge):
                await tree.create("/a", half + half)
            await tree.multi([Create("/a", half), Create("/b", half[:-1_000])])

        play(scene)

    def test_an_ephemeral_node_goes_with_its_session(self, play: Callable[[Scene], None]) -> None:
        """It names its owner, has no children, and is gone when the session ends."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/alive")
            await tree.create("/stays", b"")
            await other.create("/alive/1", b"me", ephemeral=True)
            stat = await tree.exists("/alive/1")
            assert stat is not None
            assert stat.ephemeral_owner == other.session != tree.session
            with pytest.raises(NoChildrenForEphemerals):
                await other.create("/alive/1/child")
            await other.close()
            assert await tree.exists("/alive/1") is None
            assert await tree.exists("/stays") is not None

        play(scene)

    def test_a_closed_session_refuses(self, play: Callable[[Scene], None]) -> None:
        """SessionExpired for reads and writes; closing twice is no error."""

        async def scene(tree: Tree, other: Tree) -> None:
            await other.close()
            await other.close()
            with pytest.raises(SessionExpired):
                await other.get("/")
            with pytest.raises(SessionExpired):
                await other.create("/a")
            await tree.create("/a")

        play(scene)

    def test_an_expired_session_is_reported(self, play: Callable[[Scene], None]) -> None:
        """Its ephemeral nodes go, it is called back once, and refuses; `close` calls nobody."""

        async def scene(tree: Tree, other: Tree) -> None:
            calls: list[str] = []
            tree.when_expired(lambda: calls.append("tree"))
            other.when_expired(lambda: calls.append("other"))
            await other.create("/controller", ephemeral=True)
            await self.expire(other)
            assert calls == ["other"]
            assert await tree.exists("/controller") is None
            with pytest.raises(SessionExpired):
                await other.exists("/")
            await other.close()
            await tree.close()
            assert calls == ["other"]

        play(scene)

    def test_sequential_names_rise(self, play: Callable[[Scene], None]) -> None:
        """Ten digits that rise under one parent, and are not used again after a deletion."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/q")
            first = await tree.create("/q/n-", sequential=True)
            second = await other.create("/q/n-", sequential=True)
            await tree.delete(second)
            third = await tree.create("/q/n-", sequential=True)
            assert first < second < third
            assert all(len(path) == len("/q/n-") + 10 for path in (first, second, third))

        play(scene)

    def test_a_watch_fires_once(self, play: Callable[[Scene], None]) -> None:
        """For the first change after it was set, with kind and path, and not again."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            await tree.create("/a", b"0")
            await tree.get("/a", watch=events.append)
            await other.set("/a", b"1")
            await other.set("/a", b"2")
            await settle(tree)
            assert events == [Event(CHANGED, "/a")]

        play(scene)

    def test_exists_watches_what_is_not_there(self, play: Callable[[Scene], None]) -> None:
        """It fires when the node comes; set again, when it goes."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            assert await tree.exists("/a", watch=events.append) is None
            await other.create("/a")
            await settle(tree)
            assert events == [Event(CREATED, "/a")]
            await tree.exists("/a", watch=events.append)
            await other.delete("/a")
            await settle(tree)
            assert events == [Event(CREATED, "/a"), Event(DELETED, "/a")]

        play(scene)

    def test_children_are_watched(self, play: Callable[[Scene], None]) -> None:
        """A child that comes or goes fires, a child's data do not, nor do grandchildren."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            await tree.create("/t")
            await tree.create("/t/a")
            await tree.children("/t", watch=events.append)
            await other.set("/t/a", b"x")
            await other.create("/t/a/deep")
            await settle(tree)
            assert events == []
            await other.create("/t/b")
            await settle(tree)
            assert events == [Event(CHILDREN, "/t")]

        play(scene)

    def test_the_end_of_a_session_fires_watches(self, play: Callable[[Scene], None]) -> None:
        """Who watches an ephemeral node learns that its owner has gone."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            await other.create("/controller", b"2", ephemeral=True)
            await tree.get("/controller", watch=events.append)
            await other.close()
            await settle(tree)
            assert events == [Event(DELETED, "/controller")]

        play(scene)

    def test_watches_fire_in_the_order_of_the_writes(self, play: Callable[[Scene], None]) -> None:
        """Of several nodes, whoever wrote them, in one write or in several."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[str] = []
            paths = [f"/{name}" for name in "dbacfe"]
            for path in paths:
                await tree.create(path)
            for path in sorted(paths):
                await tree.get(path, watch=lambda event: events.append(event.path))
            await other.set("/d", b"x")
            await other.multi([Set("/b", b"x"), Set("/a", b"x")])
            await other.delete("/c")
            await tree.multi([Set("/f", b"x")])
            await other.set("/e", b"x")
            await tree.sync()
            await settle(tree)
            assert [events[0], *sorted(events[1:3]), *events[3:]] == [f"/{c}" for c in "dabcfe"]

        play(scene)

    def test_a_watch_fires_before_its_change_can_be_read(
        self, play: Callable[[Scene], None]
    ) -> None:
        """Who reads what another session wrote has been told of it: an answer does not overtake
        the event."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a", b"0")
            for number in range(1, 30):
                events: list[Event] = []
                before, _ = await tree.get("/a", watch=events.append)
                writing = asyncio.ensure_future(other.set("/a", str(number).encode()))
                while (await tree.get("/a"))[0] == before:
                    await asyncio.sleep(0)
                assert events == [Event(CHANGED, "/a")]
                await writing

        play(scene)

    def test_after_a_sync_all_that_was_written_is_read(self, play: Callable[[Scene], None]) -> None:
        """A read may be stale; not after `sync`, nor after a write of the session's own."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a", b"0")
            for number in range(1, 30):
                await other.set("/a", b"%d" % number)
                await tree.sync()
                assert (await tree.get("/a"))[0] == b"%d" % number
                await other.create(f"/n{number}")
                await tree.set("/a", b"mine")
                assert await tree.exists(f"/n{number}") is not None

        play(scene)

    def test_a_failed_write_fires_nothing(self, play: Callable[[Scene], None]) -> None:
        """A multi that was rolled back is not seen by watches."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            await tree.create("/a")
            await tree.get("/a", watch=events.append)
            with pytest.raises(NoNode):
                await other.multi([Set("/a", b"x"), Delete("/nowhere")])
            await settle(tree)
            assert events == []

        play(scene)

    def test_writes_take_effect_in_order(self, play: Callable[[Scene], None]) -> None:
        """Operations asked for without waiting happen in the order asked for."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a")
            writes = [tree.set("/a", str(i).encode()) for i in range(50)]
            assert await asyncio.gather(*writes) == list(range(1, 51))
            assert (await tree.get("/a"))[0] == b"49"

        play(scene)

    def test_numbers_of_writes_rise(self, play: Callable[[Scene], None]) -> None:
        """`created` and `modified` order all writes to the tree."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a")
            await other.create("/b")
            await tree.set("/a", b"x")
            a, b = await tree.exists("/a"), await tree.exists("/b")
            assert a is not None
            assert b is not None
            assert a.created < b.created < a.modified

        play(scene)

    @pytest.mark.parametrize(
        "path",
        ["", "a", "/a/", "//", "/a//b", "/a/./b", "/..", "/a\x00", "/" + "a" * PATH_BYTES_MAX],
    )
    def test_bad_paths_are_refused(self, play: Callable[[Scene], None], path: str) -> None:
        """BadPath, whatever is asked for."""

        async def scene(tree: Tree, other: Tree) -> None:
            with pytest.raises(BadPath):
                await tree.create(path)
            with pytest.raises(BadPath):
                await tree.exists(path)

        play(scene)


async def settle(tree: Tree) -> None:
    """Give watches the time of one more round trip."""
    await tree.exists("/")
    await asyncio.sleep(0)
