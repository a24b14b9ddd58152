"""The engine on a real ZooKeeper: the conformance suites, lost servers, many nodes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata_store.tree import ConnectionLoss, Create, SessionExpired, Tree
from ottla.seams.background import RealBackground
from ottla.seams.clock import RealClock
from tests import needs
from tests.apache.zookeeper import Ensemble, ZooKeeper
from tests.metadata_store.lossy_conformance import LossyConformance
from tests.metadata_store.proxy import Proxy

SESSION_S = 20.0
NUMBERS = itertools.count()


class Sessions:
    """Opens sessions of one event loop, and closes them in the end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.background = RealBackground(self.loop)
        self.trees: list[Any] = []

    async def open(
        self, hosts: str, root: str = "", session_s: float = SESSION_S, timeout_s: float = 60.0
    ) -> Any:
        from ottla.metadata_store.zookeeper import ZooKeeperTree
        from ottla.seams.zookeeper import new_client

        client = new_client(hosts, session_s, self.loop)
        tree = await ZooKeeperTree.connect(
            client, root, self.background, RealClock(self.loop), timeout_s
        )
        self.trees.append(tree)
        return tree

    async def close(self) -> None:
        for tree in self.trees:
            await tree.close()
        self.background.close()


@asynccontextmanager
async def opening() -> AsyncIterator[Sessions]:
    sessions = Sessions()
    try:
        yield sessions
    finally:
        await sessions.close()


async def expire(tree: Any) -> None:
    """Another connection takes the session over and closes it, as a server would."""
    from kazoo.client import KazooClient

    expired = asyncio.Event()
    tree.when_expired(expired.set)
    hosts = ",".join(f"{host}:{port}" for host, port in tree.client.hosts)

    def take_over() -> None:
        client = KazooClient(hosts, client_id=tree.client.client_id)
        client.start(60)
        client.stop()
        client.close()

    await asyncio.get_running_loop().run_in_executor(None, take_over)
    await expired.wait()


class TestZooKeeper(LossyConformance):
    """The conformance suites on one server; the first session goes through a relay."""

    @pytest.fixture(autouse=True)
    def on(self, zookeeper: ZooKeeper) -> None:
        self.server = zookeeper

    @asynccontextmanager
    async def sessions(self, directory: Path) -> AsyncIterator[tuple[Tree, Tree]]:
        async with Proxy(self.server.port) as self.proxy, opening() as sessions:
            root = f"/conformance/{next(NUMBERS)}"
            yield (
                await sessions.open(f"127.0.0.1:{self.proxy.port}", root),
                await sessions.open(self.server.connect, root),
            )

    async def withhold_answers(self, tree: Tree) -> None:
        self.proxy.withhold_answers()

    async def cut(self, tree: Tree) -> None:
        self.proxy.cut()

    async def expire(self, tree: Tree) -> None:
        await expire(tree)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    needs.zookeeper_server()
    with Ensemble(tmp_path) as servers:
        yield servers


def run(scene: Callable[[Sessions], Any]) -> None:
    async def main() -> None:
        async with opening() as sessions:
            await asyncio.wait_for(scene(sessions), 120)

    asyncio.run(main())


def test_an_ensemble_loses_a_server_and_the_sessions_go_on(ensemble: Ensemble) -> None:
    """The leader is killed: a session and its ephemeral node outlive it, and no write is doubled.

    With two of three gone nothing is answered; with one of them back it is again.
    """

    async def scene(sessions: Sessions) -> None:
        tree = await sessions.open(ensemble.connect, "/a/chroot")
        other = await sessions.open(ensemble.connect, "/a/chroot")
        await tree.create("/mine", b"", ephemeral=True)
        await tree.create("/counter", b"0")
        ensemble.leader.kill()
        done = 0
        for number in range(1, 11):
            try:
                done = await tree.set("/counter", str(number).encode(), done)
            except ConnectionLoss:
                _, stat = await tree.get("/counter")
                assert stat.version in (done, done + 1)
                done = stat.version
        await other.sync()
        assert (await other.get("/counter"))[1].version == done
        assert (await other.exists("/mine")).ephemeral_owner == tree.session
        second = ensemble.leader
        second.kill()
        waiting = asyncio.ensure_future(tree.exists("/mine"))
        second.start()
        try:
            stat = await waiting
        except ConnectionLoss:  # it was under way when the connection was lost
            stat = await tree.exists("/mine")
        assert stat.ephemeral_owner == tree.session

    run(scene)


def test_a_suspended_client_finds_its_session_expired(zookeeper: ZooKeeper) -> None:
    """The server ends a session that is silent: its node goes, and it refuses from then on.

    A relay that withholds what the client says stands for a process that is stopped.
    """

    async def scene(sessions: Sessions) -> None:
        root = f"/silent/{next(NUMBERS)}"
        async with Proxy(zookeeper.port) as proxy:
            silent = await sessions.open(f"127.0.0.1:{proxy.port}", root, session_s=1.0)
            other = await sessions.open(zookeeper.connect, root)
            expired, gone = asyncio.Event(), asyncio.Event()
            silent.when_expired(expired.set)
            await silent.create("/controller", b"1", ephemeral=True)
            await other.exists("/controller", watch=lambda event: gone.set())
            proxy.refuse(True)
            await gone.wait()
            assert not expired.is_set()
            proxy.refuse(False)
            await expired.wait()
            with pytest.raises(SessionExpired):
                await silent.get("/")

    run(scene)


def test_no_server_is_one_sentence() -> None:
    """A start without ZooKeeper says where it looked, and for how long."""
    needs.zookeeper_server()

    async def scene(sessions: Sessions) -> None:
        with pytest.raises(
            ConnectionLoss, match=r"127\.0\.0\.1:1: no server answered within 0.2 s"
        ):
            await sessions.open("127.0.0.1:1", timeout_s=0.2)

    run(scene)


def test_ten_thousand_nodes_are_read(zookeeper: ZooKeeper) -> None:
    """All of them come back, in requests of many."""

    async def scene(sessions: Sessions) -> None:
        tree = await sessions.open(zookeeper.connect, f"/many/{next(NUMBERS)}")
        for first in range(0, 10_000, 2_000):
            await tree.multi([Create(f"/{i:05}", b"x" * 80) for i in range(first, first + 2_000)])
        found = await tree.get_many([f"/{i:05}" for i in range(10_000)])
        assert len(found) == 10_000
        assert set(found.values()) == {(b"x" * 80, 0)}
        await tree.multi([Create("/00007/below", b"y"), Create("/00007/below/deep")])
        asked, call = [], tree.client._call
        tree.client._call = lambda request, answer: asked.append(request) or call(request, answer)
        whole = await tree.subtree("/")
        assert len(asked) < 40
        below = {"/": (b"", 0), "/00007/below": (b"y", 0), "/00007/below/deep": (b"", 0)}
        assert whole == found | below

    run(scene)


def test_a_lost_server_is_one_line_and_so_is_its_return(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo's own lines, one for each attempt to connect, are left out."""
    caplog.set_level(logging.INFO)

    async def scene(sessions: Sessions) -> None:
        async with Proxy(zookeeper.port) as proxy:
            tree = await sessions.open(f"127.0.0.1:{proxy.port}", f"/lines/{next(NUMBERS)}")
            caplog.clear()
            proxy.refuse(True)
            reading = asyncio.ensure_future(tree.exists("/"))
            while proxy.refused < 3:
                await asyncio.sleep(0.01)
            proxy.refuse(False)
            await reading
            assert [each.getMessage() for each in caplog.records if "zookeeper" in each.name] == [
                "the connection to ZooKeeper is lost; another one is looked for",
                "ZooKeeper answers again",
            ]

    run(scene)


def test_while_there_is_no_server_kazoo_has_a_line_a_minute() -> None:
    """The first is the owner's; errors pass always; after a quiet minute it begins anew."""
    from ottla.seams.zookeeper import LimitedLines

    lines = LimitedLines()

    def passes(at_s: float, level: int = logging.WARNING) -> bool:
        record = logging.LogRecord("kazoo", level, "", 0, "", (), None)
        record.created = at_s
        return lines.filter(record)

    assert [at_s for at_s in range(1000, 1200, 10) if passes(at_s)] == [1060, 1120, 1180]
    assert not passes(1190, logging.INFO)
    assert passes(1190, logging.ERROR)
    assert not passes(2000)
    assert passes(2060)


def test_broker_ids_are_drawn_from_a_real_server(zookeeper: ZooKeeper) -> None:
    """From 1001 on where nobody has drawn one; each session gets another."""
    from ottla.broker.drawn_id import draw

    async def scene(sessions: Sessions) -> None:
        root = f"/drawn/{next(NUMBERS)}"
        trees = [await sessions.open(zookeeper.connect, root) for _ in range(3)]
        drawn = await asyncio.gather(*(draw(tree, 1000) for tree in trees))
        assert sorted(drawn) == [1001, 1002, 1003]
        data, stat = await trees[0].get("/brokers/seqid")
        assert (data, stat.version) == (b"", 3)

    run(scene)
