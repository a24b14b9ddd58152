"""What an engine of the metadata tree must do whose connection can be lost.

As `conformance.py`; the engine's test file also says how to withhold answers from the first of the
two sessions, and how to cut its connection, which comes back.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.metadata_store.tree import (
    CHANGED,
    CHILDREN,
    ConnectionLoss,
    Create,
    Event,
    NodeExists,
    Set,
    Tree,
)
from tests.metadata_store.conformance import Scene, TreeConformance


class LossyConformance(TreeConformance):
    """Subclass me too."""

    async def withhold_answers(self, tree: Tree) -> None:
        """Requests of the session arrive; it gets no answers until it is cut."""
        raise NotImplementedError

    async def cut(self, tree: Tree) -> None:
        """The session's connection is lost; the next one is as usual."""
        raise NotImplementedError

    async def lose_answer(self, tree: Tree, other: Tree, write: Awaitable[object]) -> None:
        """Let the write take place (it is seen at /done) and its answer be lost."""
        await self.withhold_answers(tree)
        under_way = asyncio.ensure_future(write)
        while await other.exists("/done") is None:
            await asyncio.sleep(0.002)
        await self.cut(tree)
        with pytest.raises(ConnectionLoss):
            await under_way

    def test_a_write_whose_answer_is_lost_is_not_made_again(
        self, play: Callable[[Scene], None]
    ) -> None:
        """ConnectionLoss: it may have taken place, and here it has, once."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a", b"0")
            await self.lose_answer(tree, other, tree.multi([Set("/a", b"1"), Create("/done")]))
            data, stat = await tree.get("/a")
            assert (data, stat.version) == (b"1", 1)
            with pytest.raises(NodeExists):
                await tree.create("/done")
            assert (await other.get("/a"))[1].version == 1

        play(scene)

    def test_a_write_that_was_lost_on_its_way_has_not_taken_place(
        self, play: Callable[[Scene], None]
    ) -> None:
        """ConnectionLoss, or nothing and it is done: never ConnectionLoss and done later."""

        async def scene(tree: Tree, other: Tree) -> None:
            await tree.create("/a", b"0")
            await self.cut(tree)
            try:
                version = await tree.set("/a", b"1")
            except ConnectionLoss:
                version = (await tree.get("/a"))[1].version
            for _ in range(3):
                await tree.exists("/")
            assert (await other.get("/a"))[1].version == version

        play(scene)

    def test_a_session_outlives_its_connection(self, play: Callable[[Scene], None]) -> None:
        """Its ephemeral nodes stay, nobody is called back, and it goes on."""

        async def scene(tree: Tree, other: Tree) -> None:
            calls: list[str] = []
            tree.when_expired(lambda: calls.append("expired"))
            session = tree.session
            await tree.create("/mine", b"", ephemeral=True)
            await self.lose_answer(tree, other, tree.create("/done"))
            stat = await tree.exists("/mine")
            assert stat is not None
            assert stat.ephemeral_owner == tree.session == session
            assert calls == []

        play(scene)

    def test_watches_fire_when_the_connection_is_lost(self, play: Callable[[Scene], None]) -> None:
        """A change may have been missed: the watcher reads again. Once for each watch."""

        async def scene(tree: Tree, other: Tree) -> None:
            events: list[Event] = []
            await tree.create("/t")
            await tree.create("/t/a", b"0")
            await tree.get("/t/a", watch=events.append)
            await tree.children("/t", watch=events.append)
            await self.lose_answer(tree, other, tree.create("/done"))
            await other.set("/t/a", b"1")
            await other.create("/t/b")
            await tree.sync()
            await tree.exists("/")
            assert sorted(events) == [Event(CHANGED, "/t/a"), Event(CHILDREN, "/t")]

        play(scene)
