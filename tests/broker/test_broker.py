"""The broker as a whole: restarts, crashes between two steps, changes that take effect at once."""

import errno
import sqlite3
from collections.abc import Callable

import pytest

from ottla.cluster.requests import NewPartitions, Resource, ResourceType
from ottla.log.directories import DirectoryProblem
from ottla.metadata_store.tree import ConnectionLoss
from ottla.wire.errors import ErrorCode
from tests.broker.desk import Desk, fetch_request, values
from tests.broker.test_fetch import delete


def again(desk: Desk, **settings: object) -> Desk:
    """The next start on the same disk."""
    return Desk(disk=desk.disk, clock=desk.clock, seed=2, **settings)


def alter(desk: Desk, resource_type: int, name: str, **configs: str) -> None:
    named = [(key.replace("_", "."), 0, value) for key, value in configs.items()]
    resource = Resource(resource_type, name)
    outcomes = desk.run(desk.broker.controller.incremental_alter_configs([(resource, named)]))
    assert outcomes[0].error_code == 0, outcomes


def test_a_clean_restart_keeps_everything() -> None:
    """Topics, ids, records, offsets; the leader epoch rises by one."""
    with Desk() as desk:
        topic_id = desk.create("t", 2)
        desk.produce("t", 1, b"a", b"b")
        cluster_id = desk.broker.image.cluster_id
    with again(desk) as later:
        assert later.broker.image.cluster_id == cluster_id
        assert later.broker.image.topics["t"].id == topic_id
        assert values(later.ask(fetch_request(("t", 1, 0)), 11)) == {("t", 1): [b"a", b"b"]}
        assert later.partition("t", 1).leader_epoch == 1
        assert later.produce("t", 1, b"c").base_offset == 2


def test_a_partition_costs_nothing_until_it_is_used() -> None:
    """After a clean start no log is open; the first request opens its own."""
    with Desk() as desk:
        desk.create("t", 100)
    with again(desk) as later:
        assert later.broker.partitions.all_opened() == []
        assert later.broker.logs.opened() == []
        later.produce("t", 7)
        assert [each.index for each in later.broker.partitions.all_opened()] == [7]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_leaves_whole_topics(seed: int) -> None:
    """A topic that was answered for is there and works, whatever the disk lost of its folders."""
    desk = Desk()
    desk.create("t", 5)
    desk.disk.crash(seed)
    desk.kill()
    with again(desk) as later:
        for index in range(5):
            assert later.produce("t", index).error_code == 0, f"seed {seed}, partition {index}"


def test_a_deletion_is_finished_by_the_next_start() -> None:
    """When the tree has forgotten the topic but its folders are still there."""
    desk = Desk()
    old_id = desk.create("t")
    desk.produce("t", 0, b"old")

    async def never(keys: object) -> None:
        raise OSError(errno.EIO, "on purpose")

    desk.broker.logs.delete = never  # type: ignore[method-assign, assignment]
    delete(desk, "t")
    desk.disk.kill()
    desk.kill()
    with again(desk) as later:
        assert "t" not in later.broker.image.topics
        assert later.create("t") != old_id
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): []}


def test_a_deleted_topic_is_gone_at_once_and_may_be_made_again() -> None:
    """No request sees the old one, and the new one begins empty."""
    with Desk() as desk:
        old_id = desk.create("t", 2)
        desk.produce("t", 0, b"old")
        delete(desk, "t")
        assert desk.produce("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert desk.create("t", 2) != old_id
        assert desk.produce("t", 0, b"new").base_offset == 0
        desk.settle()
        assert desk.broker.image.deletions == {}


def test_more_partitions_are_there_when_the_answer_is() -> None:
    """CreatePartitions, then produce to the new one."""
    with Desk() as desk:
        desk.create("t", 1)
        desk.partition("t")
        outcomes = desk.run(desk.broker.controller.create_partitions([NewPartitions("t", 3)]))
        assert outcomes[0].error_code == 0
        assert desk.produce("t", 2).error_code == 0


def test_a_topics_config_takes_effect_at_once() -> None:
    """On logs that are open, and on those opened later, also after a restart."""
    with Desk() as desk:
        desk.create("t", 2)
        desk.produce("t", 0, b"x" * 500)
        alter(desk, ResourceType.TOPIC, "t", max_message_bytes="100")
        for index in (0, 1):
            error = desk.produce("t", index, b"x" * 500).error_code
            assert error == ErrorCode.MESSAGE_TOO_LARGE
    with again(desk) as later:
        assert later.produce("t", 1, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_brokers_dynamic_config_takes_effect_at_once() -> None:
    """As the default of every topic that does not say otherwise, also after a crash."""
    desk = Desk()
    desk.create("t")
    desk.create("own", max_message_bytes="100000")
    desk.produce("t", 0, b"x" * 500)
    alter(desk, ResourceType.BROKER, "", message_max_bytes="100")
    assert desk.produce("t", 0, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert desk.produce("own", 0, b"x" * 500).error_code == 0
    desk.disk.kill()
    desk.kill()
    with again(desk) as later:
        assert later.produce("t", 0, b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert later.produce("own", 0, b"x" * 500).error_code == 0


def test_folders_of_another_broker_are_adopted() -> None:
    """Partitions without a topic in the tree become one: name, id, records, epochs kept."""
    with Desk() as desk:
        topic_id = desk.create("t", 2)
        desk.produce("t", 1, b"a")
    disk = desk.disk
    disk._databases.clear()  # the tree is lost; the folders are what Kafka would have left
    with again(desk) as later:
        assert later.broker.image.topics["t"].id == topic_id
        assert len(later.broker.image.topics["t"].partitions) == 2
        assert later.partition("t", 1).leader_epoch >= 1
        assert values(later.ask(fetch_request(("t", 1, 0)), 11)) == {("t", 1): [b"a"]}


def test_a_second_broker_on_the_same_directory_is_refused() -> None:
    """In one sentence, and the first goes on."""
    with Desk() as desk:
        desk.create("t")
        with pytest.raises(DirectoryProblem, match="in use by another server"):
            Desk(disk=desk.disk, clock=desk.clock)
        assert desk.produce("t").error_code == 0


def test_stopping_answers_what_waits() -> None:
    """A parked fetch gets an empty answer rather than silence."""
    desk = Desk()
    desk.create("t")
    answer = desk.post(fetch_request(("t", 0, 0), max_wait_ms=30_000), 11)
    desk.close()
    assert values(answer.response) == {("t", 0): []}


def test_a_start_that_fails_lets_go_of_the_directory() -> None:
    """The reason is told, and once it is mended the next start works."""
    with Desk() as desk:
        desk.create("t")
        desk.produce("t", 0, b"a")
    database, desk.disk.database = desk.disk.database, broken_database  # type: ignore[method-assign]
    with pytest.raises(ConnectionLoss, match="on purpose"):
        again(desk)
    desk.disk.database = database  # type: ignore[method-assign]
    with again(desk) as later:
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"a"]}


def broken_database(path: str) -> sqlite3.Connection:
    raise OSError(errno.EIO, "on purpose")


def test_a_folder_that_cannot_be_made_is_a_partition_offline() -> None:
    """KAFKA_STORAGE_ERROR for that one; after a restart with room it is there."""
    with Desk() as desk:
        make, desk.disk.mkdir = desk.disk.mkdir, failing_mkdir(desk)  # type: ignore[method-assign]
        desk.create("t", 2)
        desk.disk.mkdir = make  # type: ignore[method-assign]
        assert desk.produce("t", 0).error_code == 0
        answer = desk.ask(fetch_request(("t", 1, 0)), 11).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with again(desk) as later:
        assert later.produce("t", 1).error_code == 0


def failing_mkdir(desk: Desk) -> Callable[[str], None]:
    mkdir = desk.disk.mkdir

    def fail(path: str) -> None:
        if path.endswith("t-1"):
            raise OSError(errno.ENOSPC, "on purpose")
        mkdir(path)

    return fail
