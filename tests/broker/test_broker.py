"""The broker as a whole: restarts, crashes between two steps, changes that take effect at once."""

import errno
import sqlite3
from collections.abc import Callable

import pytest

from ottla.cluster.controller import Controller
from ottla.cluster.requests import NewPartitions, Resource, ResourceType
from ottla.cluster.state import NotController
from ottla.log.directories import DirectoryProblem
from ottla.metadata_store.tree import ConnectionLoss
from ottla.wire.errors import ErrorCode
from tests.broker.harness import DATA, BrokerHarness, fetch_request, values
from tests.broker.test_fetch import delete


def again(harness: BrokerHarness, **settings: object) -> BrokerHarness:
    """The next start on the same disk."""
    return BrokerHarness(disk=harness.disk, clock=harness.clock, seed=2, **settings)


def alter(harness: BrokerHarness, resource_type: int, name: str, **configs: str) -> None:
    named = [(key.replace("_", "."), 0, value) for key, value in configs.items()]
    resource = Resource(resource_type, name)
    outcomes = harness.run(harness.broker.controller.incremental_alter_configs([(resource, named)]))
    assert outcomes[0].error_code == 0, outcomes


def test_a_clean_restart_keeps_everything() -> None:
    """Topics, ids, records, offsets; the leader epoch rises by one."""
    with BrokerHarness() as harness:
        topic_id = harness.create("t", 2)
        harness.produce("t", 1, b"a", b"b")
        cluster_id = harness.broker.image.cluster_id
    with again(harness) as later:
        assert later.broker.image.cluster_id == cluster_id
        assert later.broker.image.topics["t"].id == topic_id
        assert values(later.ask(fetch_request(("t", 1, 0)), 11)) == {("t", 1): [b"a", b"b"]}
        assert later.partition("t", 1).leader_epoch == 1
        assert later.produce("t", 1, b"c").base_offset == 2


def test_a_start_that_fails_does_not_spoil_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker epoch of the last stop is noted again: the next start is one after a clean stop
    (KIP-966)."""
    with BrokerHarness() as harness:
        harness.create("t")
        epoch = harness.broker.epoch
    with monkeypatch.context() as patch:

        async def refused(*_: object) -> None:
            raise NotController("none is there")

        patch.setattr(Controller, "register_broker", refused)
        with pytest.raises(NotController):
            again(harness)
    with again(harness) as later:
        assert later.broker.logs.last_broker_epoch == epoch > 0
        assert later.broker.epoch > epoch


def test_a_partition_costs_nothing_until_it_is_used() -> None:
    """After a clean start no log is open; the first request opens its own."""
    with BrokerHarness() as harness:
        harness.create("t", 100)
    with again(harness) as later:
        assert later.broker.partitions.all_opened() == []
        assert later.broker.logs.opened() == []
        later.produce("t", 7)
        assert [each.index for each in later.broker.partitions.all_opened()] == [7]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_leaves_whole_topics(seed: int) -> None:
    """A topic that was answered for is there and works, whatever the disk lost of its folders."""
    harness = BrokerHarness()
    harness.create("t", 5)
    harness.disk.crash(seed)
    harness.kill()
    with again(harness) as later:
        for index in range(5):
            assert later.produce("t", index).error_code == 0, f"seed {seed}, partition {index}"


def test_a_deletion_is_finished_by_the_next_start() -> None:
    """When the tree has forgotten the topic but its folders are still there."""
    harness = BrokerHarness()
    old_id = harness.create("t")
    harness.produce("t", 0, b"old")

    async def never(keys: object) -> None:
        raise OSError(errno.EIO, "on purpose")

    harness.broker.logs.delete = never  # type: ignore[method-assign, assignment]
    delete(harness, "t")
    harness.disk.kill()
    harness.kill()
    with again(harness) as later:
        assert "t" not in later.broker.image.topics
        assert later.create("t") != old_id
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): []}


def test_a_deleted_topic_is_gone_at_once_and_may_be_made_again() -> None:
    """No request sees the old one, and the new one begins empty."""
    with BrokerHarness() as harness:
        old_id = harness.create("t", 2)
        harness.produce("t", 0, b"old")
        delete(harness, "t")
        assert harness.produce("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.create("t", 2) != old_id
        assert harness.produce("t", 0, b"new").base_offset == 0
        harness.settle()
        assert harness.broker.image.deletions == {}


def test_more_partitions_are_there_when_the_answer_is() -> None:
    """CreatePartitions, then produce to the new one."""
    with BrokerHarness() as harness:
        harness.create("t", 1)
        harness.partition("t")
        outcomes = harness.run(harness.broker.controller.create_partitions([NewPartitions("t", 3)]))
        assert outcomes[0].error_code == 0
        assert harness.produce("t", 2).error_code == 0


def test_a_topics_config_takes_effect_at_once() -> None:
    """On logs that are open, and on those opened later, also after a restart."""
    with BrokerHarness() as harness:
        harness.create("t", 2)
        harness.produce("t", 0, b"x" * 500)
        alter(harness, ResourceType.TOPIC, "t", max_message_bytes="100")
        for index in (0, 1):
            error = harness.produce("t", index, b"x" * 500).error_code
            assert error == ErrorCode.MESSAGE_TOO_LARGE
    with again(harness) as later:
        assert later.produce("t", 1, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_brokers_dynamic_config_takes_effect_at_once() -> None:
    """As the default of every topic that does not say otherwise, also after a crash."""
    harness = BrokerHarness()
    harness.create("t")
    harness.create("own", max_message_bytes="100000")
    harness.produce("t", 0, b"x" * 500)
    alter(harness, ResourceType.BROKER, "", message_max_bytes="100")
    assert harness.produce("t", 0, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert harness.produce("own", 0, b"x" * 500).error_code == 0
    harness.disk.kill()
    harness.kill()
    with again(harness) as later:
        assert later.produce("t", 0, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert later.produce("own", 0, b"x" * 500).error_code == 0


def test_folders_of_another_broker_are_adopted() -> None:
    """Partitions without a topic in the tree become one: name, id, records, epochs kept."""
    with BrokerHarness() as harness:
        topic_id = harness.create("t", 2)
        harness.produce("t", 1, b"a")
    disk = harness.disk
    disk._databases.clear()  # the tree is lost; the folders are what Kafka would have left
    with again(harness) as later:
        assert later.broker.image.topics["t"].id == topic_id
        assert len(later.broker.image.topics["t"].partitions) == 2
        assert later.partition("t", 1).leader_epoch >= 1
        assert values(later.ask(fetch_request(("t", 1, 0)), 11)) == {("t", 1): [b"a"]}


def test_a_second_broker_on_the_same_directory_is_refused() -> None:
    """In one sentence, and the first goes on."""
    with BrokerHarness() as harness:
        harness.create("t")
        with pytest.raises(DirectoryProblem, match="in use by another server"):
            BrokerHarness(disk=harness.disk, clock=harness.clock)
        assert harness.produce("t").error_code == 0


def test_stopping_answers_what_waits() -> None:
    """A parked fetch gets an empty answer rather than silence."""
    harness = BrokerHarness()
    harness.create("t")
    answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=30_000), 11)
    harness.close()
    assert values(answer.response) == {("t", 0): []}


def test_a_start_that_fails_lets_go_of_the_directory() -> None:
    """The error names the reason, and once it is mended the next start works."""
    with BrokerHarness() as harness:
        harness.create("t")
        harness.produce("t", 0, b"a")
    database, harness.disk.database = harness.disk.database, broken_database  # type: ignore[method-assign]
    with pytest.raises(ConnectionLoss, match="on purpose"):
        again(harness)
    harness.disk.database = database  # type: ignore[method-assign]
    with again(harness) as later:
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"a"]}


def broken_database(path: str) -> sqlite3.Connection:
    raise OSError(errno.EIO, "on purpose")


def test_a_folder_that_cannot_be_made_is_a_partition_offline() -> None:
    """KAFKA_STORAGE_ERROR for that one; after a restart with free space it is there."""
    with BrokerHarness() as harness:
        make, harness.disk.mkdir = harness.disk.mkdir, failing_mkdir(harness)  # type: ignore[method-assign]
        harness.create("t", 2)
        harness.settle()
        harness.disk.mkdir = make  # type: ignore[method-assign]
        assert harness.produce("t", 0).error_code == 0
        answer = harness.ask(fetch_request(("t", 1, 0)), 11).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with again(harness) as later:
        assert later.produce("t", 1).error_code == 0


def failing_mkdir(harness: BrokerHarness) -> Callable[[str], None]:
    mkdir = harness.disk.mkdir

    def fail(path: str) -> None:
        if path.endswith("t-1"):
            raise OSError(errno.ENOSPC, "on purpose")
        mkdir(path)

    return fail


@pytest.mark.parametrize("clean", [True, False])
def test_the_high_watermark_starts_from_its_checkpoint(clean: bool) -> None:
    """Not from the log's end; the only replica is the leader, and then moves it there at once."""
    with BrokerHarness() as harness:
        harness.create("t", 2)
        for index in (0, 1):
            harness.produce("t", index, b"a")
        harness.run(harness.broker.logs.checkpointer.write(harness.broker.logs.directories))
        harness.produce("t", 0, b"b")
        if not clean:
            harness.disk.kill()
            harness.kill()
    with again(harness) as later:
        checkpointed = later.broker.logs.checkpointed_high_watermark
        assert [checkpointed("t", index) for index in (0, 1)] == [2 if clean else 1, 1]
        assert later.partition("t").high_watermark == 2
        log = later.broker.logs.get("t", 1)
        assert log is not None
        # Retention asks for it of a partition that nobody has used since the start.
        assert later.broker.logs.high_watermark_of(log) == 1
    text = later.disk.open(f"{DATA}/replication-offset-checkpoint").pread(1000, 0)
    assert b"t 0 2\n" in text
    assert b"t 1 1\n" in text
