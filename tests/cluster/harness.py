"""A controller on a local tree for tests: start, stop, crash, and read the nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ottla.cluster.configs import AnyConfig, ConfigRules
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerInfo, ClusterImage, Endpoint
from ottla.cluster.requests import NewTopic, TopicOutcome
from ottla.cluster.state import NotController, Options
from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.tree import Operation, Result, SessionExpired, Stat, Watcher
from ottla.seams.chance import SeededChance
from ottla.seams.disk import RealDisk
from tests.simulated import loop_clock, node_background, pass_time, run_simulated

T = TypeVar("T")
BROKER = BrokerInfo(1, {"PLAINTEXT": Endpoint("127.0.0.1", 9092)})


class FailingTree:
    """A tree that works for some writes and then is gone for good, as in a crash."""

    reads_at_once = True

    def __init__(self, tree: LocalTree, writes_left: int | None) -> None:
        self.tree = tree
        self.writes_left = writes_left
        self.writes = 0

    @property
    def session(self) -> int:
        return self.tree.session

    def when_expired(self, callback: Callable[[], object]) -> None:
        self.tree.when_expired(callback)

    def alive(self) -> None:
        if self.writes_left == 0:
            raise SessionExpired("/", "crashed")

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        raise AssertionError("the controller writes with multi")

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        raise AssertionError("the controller writes with multi")

    async def delete(self, path: str, version: int = -1) -> None:
        raise AssertionError("the controller writes with multi")

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        self.alive()
        return await self.tree.get(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        self.alive()
        return await self.tree.exists(path, watch)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self.alive()
        return await self.tree.children(path, watch)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        self.alive()
        return await self.tree.subtree(path)

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        self.alive()
        return await self.tree.get_many(paths)

    async def sync(self) -> None:
        self.alive()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self.alive()
        results = await self.tree.multi(operations)
        self.writes += 1
        if self.writes_left is not None:
            self.writes_left -= 1
        return results

    async def close(self) -> None:
        await self.tree.close()


class ControllerHarness:
    """One controller, its tree on disk and the brokers registered with it."""

    def __init__(self, path: Path, *, options: Options | None = None) -> None:
        self.path = path
        self.options = options or Options()
        self.rules: ConfigRules = AnyConfig()
        self.chance = SeededChance(1)
        self.clock = loop_clock()
        self.brokers = [BROKER]

    async def start(self, writes_left: int | None = None, register: bool = True) -> Controller:
        """Open the tree again and start a controller on it."""
        local = await LocalTree.open(RealDisk(), str(self.path), node_background())
        self.tree = FailingTree(local, writes_left)
        self.controller = Controller(self.tree, self.clock, self.chance, self.options, self.rules)
        await self.controller.start()
        if register:
            for broker in self.brokers:
                await self.controller.register_broker(broker)
        return self.controller

    async def join(self, broker: int | BrokerInfo, previous_epoch: int = -1) -> BrokerInfo:
        """Register a broker of another process, and let it catch up."""
        info = BrokerInfo(broker, {}) if isinstance(broker, int) else broker
        registered = await self.controller.register_broker(info, previous_epoch)
        await self.catch_up(registered)
        return self.controller.image.brokers[info.id]

    async def catch_up(self, broker: BrokerInfo) -> None:
        """Poll once, as a broker that has applied all there is."""
        image = self.controller.image
        poll = self.controller.poll(broker.id, image.number, image.controller_epoch, broker.epoch)
        polled = asyncio.create_task(poll)
        await pass_time(0)
        with suppress(NotController):  # it has crashed
            await self.controller.skip_producer_ids(1, 0)  # the queue is worked off
        polled.cancel()
        self.controller.leave(broker.id)  # it polls no more, and nobody waits for it

    async def stop(self) -> None:
        await self.controller.stop()
        await self.tree.close()

    async def crash(self) -> None:
        """Drop everything without closing the session of the tree."""
        await self.controller.stop()
        self.tree.tree._engine.store.close()

    async def nodes(self) -> dict[str, tuple[bytes, int]]:
        return await self.tree.tree.subtree("/")

    async def create(self, *topics: NewTopic, validate_only: bool = False) -> list[TopicOutcome]:
        return await self.controller.create_topics(topics, validate_only)


def run_scenario(
    path: Path,
    scenario: Callable[[ControllerHarness], Awaitable[T]],
    options: Options | None = None,
) -> T:
    """Run a scenario on a controller that has been started."""

    async def main() -> T:
        harness = ControllerHarness(path / "tree", options=options)
        await harness.start()
        result = await scenario(harness)
        await harness.stop()
        return result

    return run_simulated(main())


def without_number(image: ClusterImage) -> ClusterImage:
    """An image without number and epoch, to compare with one built by other steps."""
    return image._replace(number=0, controller_epoch=0)
