"""The broker and the controller's feed: whole images, batches of changes, and failures of both."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.found_folders import finish_deletions
from ottla.cluster import feed, topic_writes
from ottla.cluster.controller import RELOAD_S, Controller
from ottla.cluster.feed_codec import changes_of, read_batch, write_batch
from ottla.cluster.image import ClusterImage, TopicDeleted
from ottla.cluster.requests import NewTopic, ResourceType, TopicRef
from ottla.metadata_store.tree import ConnectionLoss
from ottla.replica.partition import Partition
from ottla.testing.simulation.connection import Connection
from ottla.testing.simulation.replica_log import content
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import Cluster, produce
from tests.broker.harness import BrokerHarness, fetch_request, values
from tests.broker.test_broker import alter
from tests.broker.test_fetch import delete

TREE = "/data/coordination.db"


class Gate:
    """Holds the controller's answers to the broker's polls until `open`, so that changes add up."""

    def __init__(self, harness: BrokerHarness) -> None:
        self._opened = asyncio.Event()
        self._controller: Any = harness.broker.controller
        self._poll = self._controller.poll
        self._controller.poll = self._held
        # The long poll that is under way was begun before: this change is its answer.
        harness.create("first-poll")

    async def _held(
        self, broker_id: int, number: int, controller_epoch: int, broker_epoch: int
    ) -> Any:
        self._controller.feed.applied(broker_id, number)
        await self._opened.wait()
        return await self._poll(broker_id, number, controller_epoch, broker_epoch)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def whole_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed keeps no batches: each change reaches the broker as a whole image."""
    monkeypatch.setattr(feed, "BATCHES_KEPT_MAX", 0)


def controller_image(harness: BrokerHarness) -> ClusterImage:
    controller = harness.broker.controller
    assert isinstance(controller, Controller)
    return controller.image


def folders(harness: BrokerHarness) -> list[str]:
    """The partitions' folders that are not on their way out."""
    names = [each.name for each in harness.disk.entries("/data") if each.is_directory]
    return sorted(name for name in names if not name.endswith("-delete"))


@pytest.mark.usefixtures("whole_images")
def test_a_topic_that_a_whole_image_lacks_is_given_up() -> None:
    """Its log goes, and the topic made again under its name begins empty, for good."""
    with BrokerHarness() as harness:
        old_id = harness.create("t", 2)
        harness.produce("t", 0, b"old")
        delete(harness, "t")
        assert folders(harness) == []
        harness.settle()
        assert harness.broker.image.deletions == {}
        assert harness.create("t", 2) != old_id
        assert harness.produce("t", 0, b"new").base_offset == 0
        assert values(harness.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"new"]}
    with BrokerHarness(disk=harness.disk, clock=harness.clock, seed=2) as later:
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"new"]}


@pytest.mark.usefixtures("whole_images")
def test_another_id_in_a_whole_image_is_another_topic() -> None:
    """Deleted and made again between two images: the old log is put away, a new one made."""
    with BrokerHarness() as harness:
        old_id = harness.create("t", 3)
        harness.produce("t", 0, b"old")
        waiting = harness.post(fetch_request(("t", 0, 1), max_wait_ms=60_000), 11)
        gate = Gate(harness)
        controller = harness.broker.controller

        async def delete_and_create() -> None:
            deleted = asyncio.ensure_future(controller.delete_topics([TopicRef("t")]))
            created = asyncio.ensure_future(controller.create_topics([NewTopic("t", 2, 1)]))
            while controller.image.topics.get("t", (None, old_id))[1] == old_id:
                await asyncio.sleep(0)
            gate.open()
            await asyncio.gather(deleted, created)

        harness.run(delete_and_create())
        harness.settle()
        assert waiting.ready, "whoever waits for the old topic is answered"
        assert folders(harness) == ["first-poll-0", "t-0", "t-1"]
        assert harness.broker.image.deletions == {}
        assert harness.produce("t", 0, b"new").base_offset == 0
        assert harness.partition("t").topic_id == harness.broker.image.topics["t"].id != old_id
    with BrokerHarness(disk=harness.disk, clock=harness.clock, seed=2) as later:
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"new"]}


def test_batches_behind_one_that_fails_are_applied() -> None:
    """A change whose local work fails does not take those after it along."""
    with BrokerHarness() as harness:
        old_id = harness.create("t")
        gate = Gate(harness)
        controller = harness.broker.controller
        remove = harness.broker.logs.delete

        async def fails_once(keys: object) -> None:
            harness.broker.logs.delete = remove  # type: ignore[method-assign]
            raise OSError(errno.EIO, "on purpose")

        harness.broker.logs.delete = fails_once  # type: ignore[method-assign, assignment]

        async def change() -> None:
            changes = [
                asyncio.ensure_future(controller.delete_topics([TopicRef("t")])),
                asyncio.ensure_future(controller.create_topics([NewTopic("u", 2, 1)])),
                asyncio.ensure_future(controller.create_topics([NewTopic("t", 1, 1)])),
            ]
            while controller.image.topics.get("t", (None, old_id))[1] == old_id:
                await asyncio.sleep(0)
            gate.open()
            await asyncio.gather(*changes)

        harness.produce("t", 0, b"old")
        harness.run(change())
        assert harness.produce("u", 1).error_code == 0
        # Its old log could not be put away with the deletion; it is when it stands in the way.
        assert harness.produce("t", 0, b"new").base_offset == 0


def test_a_folder_of_another_topic_id_is_kept_as_stray() -> None:
    """The tree comes from an older backup: what it does not know by its id is set aside, whole."""
    with BrokerHarness() as harness:
        harness.create("t")
    backup = sqlite3.connect(":memory:")
    harness.disk.database(TREE).backup(backup)
    with BrokerHarness(disk=harness.disk, clock=harness.clock, seed=2) as newer:
        delete(newer, "t")
        newer.create("t")
        newer.produce("t", 0, b"newer")
    backup.backup(harness.disk.database(TREE))
    with BrokerHarness(disk=harness.disk, clock=harness.clock, seed=3) as later:
        assert later.produce("t", 0, b"after the backup").base_offset == 0
        [stray] = [name for name in folders(later) if name.endswith("-stray")]
        assert stray.startswith("t-0.")
        log_file = f"/data/{stray}/{0:020d}.log"
        assert b"newer" in later.disk.read(log_file)


def test_a_broker_works_with_what_the_messages_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a channel that encodes all the controller sends, as one over the network will."""
    poll = Controller.poll
    sizes: list[int] = []

    async def encoded_poll(self: Controller, *position: int) -> Any:
        update = await poll(self, *position)
        if isinstance(update, feed.Snapshot):
            image = update.image
            whole = feed.Batch(image.number, image.controller_epoch, list(changes_of(image)))
            data = write_batch(whole)
            sizes.append(len(data))
            return feed.Snapshot(ClusterImage().apply(image.number, read_batch(data).changes))
        sizes.extend(len(write_batch(batch)) for batch in update)
        return [read_batch(write_batch(batch)) for batch in update]

    monkeypatch.setattr(Controller, "poll", encoded_poll)
    with BrokerHarness() as harness:
        harness.create("t", 3, max_message_bytes="2000")
        assert harness.produce("t", 2, b"a").error_code == 0
        assert harness.produce("t", 2, b"x" * 3000).error_code != 0
        alter(harness, ResourceType.TOPIC, "t", max_message_bytes="5000")
        alter(harness, ResourceType.BROKER, "", message_max_bytes="100000")
        assert harness.produce("t", 2, b"x" * 3000).error_code == 0
        delete(harness, "t")
        harness.create("t", 1)
        assert harness.produce("t", 0, b"new").base_offset == 0
        assert harness.broker.image._replace(number=0) == controller_image(harness)._replace(
            number=0
        )
    with BrokerHarness(disk=harness.disk, clock=harness.clock, seed=2) as later:
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"new"]}
    assert len(sizes) > 8


def test_changes_of_a_replaced_controller_are_not_applied() -> None:
    """An image or a batch of a lower controller epoch changes nothing; the broker asks again."""
    with BrokerHarness() as harness:
        harness.create("t")
        controller: Any = harness.broker.controller
        image = harness.broker.image
        old = image._replace(controller_epoch=image.controller_epoch - 1, topics={}, number=99)
        batch = feed.Batch(image.number + 1, old.controller_epoch, [TopicDeleted("t", b"", 1)])
        stale: list[Any] = [feed.Snapshot(old), [batch]]
        real = controller.poll

        async def poll(*position: int) -> Any:
            return stale.pop() if stale else await real(*position)

        controller.poll = poll
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        answer = harness.post(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        harness.settle()
        assert not answer.ready, "the controller does not know yet that it is applied"
        while not answer.ready:
            harness.advance(100)
        assert stale == []
        harness.create("v")
        assert set(harness.broker.image.topics) == {"t", "u", "v"}
        assert harness.produce("t").error_code == 0


def test_what_could_not_be_applied_is_not_reported() -> None:
    """The broker counts it, reports nothing, and applies the whole image until that works; the
    request that led to the change does not wait for it."""
    with BrokerHarness() as harness:
        broker, failures = harness.broker, 2
        configure = broker.configure

        def fails() -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RuntimeError("on purpose")
            configure()

        broker.configure = fails  # type: ignore[method-assign]
        alter(harness, ResourceType.BROKER, "", message_max_bytes="100000")
        errors = broker.metrics.counter(
            "kafka_server_broker_metadata_metrics_metadata_apply_error_count"
        )
        assert errors.value == 1
        controller: Any = broker.controller
        applied = controller.feed._applied
        assert applied.get(1) is None, "nobody waits for a broker that cannot apply"
        harness.advance(1500)
        assert (failures, errors.value) == (0, 2)
        harness.advance(1500)
        assert errors.value == 2
        assert applied == {1: controller.image.number}
        assert broker.settings.integer("message.max.bytes") == 100_000


def test_a_broker_that_missed_a_change_asks_for_the_whole_image() -> None:
    """It never applies the change after it."""
    with BrokerHarness() as harness:
        harness.create("t")
        controller: Any = harness.broker.controller
        poll = controller.poll
        asked: list[int] = []

        async def loses_one(broker_id: int, number: int, epoch: int, broker_epoch: int) -> Any:
            asked.append(number)
            update = await poll(broker_id, number, epoch, broker_epoch)
            return update[1:] if isinstance(update, list) and len(update) > 1 else update

        gate = Gate(harness)
        controller.poll, gate._poll = gate._held, loses_one

        async def change() -> None:
            changes = [
                asyncio.ensure_future(controller.create_topics([NewTopic(name, 1, 1)]))
                for name in ("a", "b")
            ]
            while "b" not in controller.image.topics:
                await asyncio.sleep(0)
            gate.open()
            await asyncio.gather(*changes)

        harness.run(change())
        assert asked[-2:] == [0, controller.image.number]
        assert {"a", "b"} <= harness.broker.image.topics.keys()
        assert harness.produce("a").error_code == 0


def test_a_broker_that_starts_applies_no_older_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given an image that was made for another one, and the changes since: none of the epochs
    between is begun again, for its log may have records of later ones."""
    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=1, replicas=(3, 2, 1))
        cluster.wait(lambda: cluster.partition("t").isr == (3, 2, 1))
        cluster.brokers[2].crash()
        cluster.brokers[2].start()  # the image that is made for it is kept
        cluster.wait(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        cluster.brokers[3].crash()
        cluster.wait(lambda: cluster.partition("t").leader in (1, 2))
        epochs: list[int] = []
        assign = Partition.assign

        def noted(self: Partition, *arguments: Any) -> None:
            assign(self, *arguments)
            if self.node_id == 3:
                epochs.append(self.leader_epoch)

        monkeypatch.setattr(Partition, "assign", noted)
        cluster.brokers[3].start()
        cluster.wait(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        assert min(epochs) == cluster.partition("t").leader_epoch


def test_a_confirmation_that_the_controller_lost_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The write of it failed; the whole image that follows still has the deletion."""
    confirm, failures = topic_writes.confirm_deletions, [0]

    async def fails_once(*arguments: Any) -> None:
        failures[0] += 1
        if failures[0] == 1:
            raise ConnectionLoss("/admin/delete_topics/t", "no answer")
        await confirm(*arguments)

    monkeypatch.setattr(topic_writes, "confirm_deletions", fails_once)
    with BrokerHarness() as harness:
        harness.create("t")
        delete(harness, "t")
        harness.settle()
        assert harness.broker.image.deletions
        harness.advance(RELOAD_S * 1000)
        harness.settle()
        assert failures[0] == 2
        assert not harness.broker.image.deletions


def test_a_deletion_that_a_broker_never_saw_is_confirmed() -> None:
    """A topic that came and went while a broker was cut off, under a controller that died then."""
    with Cluster(3) as cluster:
        cluster.simulation.network.cut("broker1", "broker3")
        assert cluster.create("t", 1, 3, through=1).error_code == ErrorCode.NONE
        topic_id = cluster.image(1).topics["t"].id
        wanted = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=10_000
        )
        assert cluster.ask(1, wanted, 6).responses[0].error_code == ErrorCode.NONE
        assert "t" not in cluster.image(3).topics
        cluster.brokers[1].crash()
        cluster.simulation.network.heal("broker1", "broker3")
        cluster.host(2)
        cluster.brokers[1].start()
        cluster.wait(lambda: cluster.image(2).number > 0 and not cluster.image(2).deletions)
        cluster.wait(lambda: not cluster.image(3).deletions)


def test_a_topic_that_is_deleted_while_a_broker_starts_leaves_nothing_there() -> None:
    """Between the image that it looks at first and the one that it applies."""
    with Cluster(3) as cluster:
        assert cluster.create("t", 1, 3, through=1).error_code == ErrorCode.NONE
        topic_id = cluster.image(1).topics["t"].id
        cluster.wait(lambda: "t" in cluster.image(3).topics)
        broker = cluster.brokers[3]
        broker.crash()
        wanted = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=10_000
        )
        looked = finish_deletions

        async def then_deleted(starting: Broker, image: ClusterImage) -> None:
            await looked(starting, image)
            if starting.node_id == 3:
                connection = await Connection.open(broker.node, "broker1")
                await connection.ask(wanted, 6)
                connection.close()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("ottla.broker.broker.finish_deletions", then_deleted)
            broker.start()
            cluster.wait(lambda: broker.started)
        cluster.wait(lambda: not cluster.image(1).deletions)
        assert not broker.broker.logs.found()


def test_a_folder_without_an_id_is_not_taken_for_a_later_topic() -> None:
    """A crash may take the file that has the topic's id: records of a deleted topic do not become
    those of the next one of its name."""
    with Cluster(3) as cluster:
        cluster.create("t", 1, 3, through=1)
        cluster.wait(lambda: all("t" in cluster.image(each).topics for each in cluster.brokers))
        old_id = cluster.image(1).topics["t"].id
        for value in ("old 0", "old 1", "old 2"):
            produce(cluster, cluster.partition("t").leader, value)
        cluster.wait(lambda: cluster.brokers[3].broker.partitions.get("t", 0).end_offset == 3)
        cluster.brokers[3].crash()
        cluster.brokers[3].node.disk.unlink("/data/t-0/partition.metadata", missing_ok=True)
        cluster.wait(lambda: cluster.partition("t").leader in (1, 2))
        wanted = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=old_id)], timeout_ms=10_000)
        assert cluster.ask(1, wanted, 6).responses[0].error_code == ErrorCode.NONE
        cluster.create("t", 1, 3, through=1, replicas=(1, 2, 3))
        cluster.wait(lambda: cluster.partition("t").isr == (1, 2))
        for value in ("new 0", "new 1", "new 2", "new 3"):
            produce(cluster, 1, value)
        cluster.brokers[3].start()
        cluster.wait(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        leader, follower = (cluster.brokers[each].broker.partitions.get("t", 0) for each in (1, 3))
        cluster.wait(lambda: follower.end_offset == leader.end_offset)
        assert content(follower) == content(leader)
