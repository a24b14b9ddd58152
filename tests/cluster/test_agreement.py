"""After any requests: the controller's image, a follower's and the tree's are the same."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.feed import Snapshot, follow_batches
from ottla.cluster.loading import read_cluster
from ottla.cluster.requests import NewPartitions, NewTopic, Op, Resource, ResourceType, TopicRef
from ottla.cluster.steps import StateValues
from ottla.seams.chance import SeededChance
from tests.cluster.harness import BROKER, ControllerHarness, without_number
from tests.simulated import pass_time, run_simulated

NAMES = st.sampled_from(["a", "b", "c.d", "c_d"])
Request = Callable[[ControllerHarness], Awaitable[object]]


def create(name: str, count: int, config: bool) -> Request:
    configs = [("x", "1")] if config else []
    return lambda harness: harness.create(NewTopic(name, count, 1, configs=configs))


def delete(name: str, confirm: bool) -> Request:
    async def run(harness: ControllerHarness) -> None:
        await harness.controller.delete_topics([TopicRef(name)])
        if confirm:
            ids = list(harness.controller.image.deletions)
            await harness.controller.confirm_deletions(1, ids)

    return run


def grow(name: str, count: int) -> Request:
    return lambda harness: harness.controller.create_partitions([NewPartitions(name, count)])


def configure(topic: bool, name: str, op: Op) -> Request:
    kind, target = (ResourceType.TOPIC, name) if topic else (ResourceType.BROKER, "")
    change = [(Resource(kind, target), [("x", int(op), "2" if op == Op.SET else None)])]
    return lambda harness: harness.controller.incremental_alter_configs(change)


def register() -> Request:
    return lambda harness: harness.controller.register_broker(BROKER)


REQUESTS = st.lists(
    st.one_of(
        st.builds(create, NAMES, st.integers(0, 4), st.booleans()),
        st.builds(create, NAMES, st.integers(0, 4), st.booleans()),
        st.builds(delete, NAMES, st.booleans()),
        st.builds(grow, NAMES, st.integers(0, 6)),
        st.builds(configure, st.booleans(), NAMES, st.sampled_from([Op.SET, Op.DELETE])),
        st.builds(register),
    ),
    max_size=15,
)


@settings(max_examples=40, deadline=None)
@given(REQUESTS)
def test_three_images_agree(requests: list[Request]) -> None:
    """What is published, what is followed and what a restart would read do not differ."""

    async def main(path: Path) -> None:
        harness = ControllerHarness(path)
        await harness.start()
        feed = harness.controller.feed
        followed = feed.image
        feed.follow(1)
        feed.applied(1, followed.number)

        async def follow() -> None:
            nonlocal followed
            while news := await feed.after(followed.number, followed.controller_epoch):
                if isinstance(news, Snapshot):
                    followed = news.image
                else:
                    followed = follow_batches(followed, news)
                feed.applied(1, followed.number)

        follower = asyncio.create_task(follow())
        for request in requests:
            await request(harness)
            nodes = await harness.nodes()
            read = read_cluster(nodes, StateValues(1), SeededChance(1).uuid)
            assert read.repairs == []
            assert without_number(read.image) == without_number(harness.controller.image)._replace(
                controller_id=-1
            )
        await pass_time(0)
        await feed.wait_applied(feed.image.number)
        assert followed == feed.image
        await harness.stop()
        await follower

    with tempfile.TemporaryDirectory() as directory:
        run_simulated(main(Path(directory) / "tree"))
