"""Topics whose folders the tree does not know: their configs, and producer ids beyond theirs.

The tree is lost in each test; what is left on the disk is what the next start adopts.
"""

from __future__ import annotations

import errno
import logging
import sqlite3

import pytest

from ottla.broker import used_producer_ids
from ottla.cluster.requests import NewPartitions, ResourceType, TopicRef
from ottla.log.checkpoints import parse_partition_configs, parse_partition_metadata
from ottla.log.log import Log
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness, fetch_request, produce_request, values
from tests.broker.test_broker import again, alter
from tests.broker.test_fetch import delete

DAY_MS = 24 * 60 * 60 * 1000
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100000"}


def without_tree(harness: BrokerHarness) -> BrokerHarness:
    """The next start, after the tree was moved away."""
    sqlite3.connect(":memory:").backup(harness.disk.database("/data/coordination.db"))
    return again(harness)


def init_producer_id(harness: BrokerHarness, transactional_id: str | None = None) -> int:
    if transactional_id is not None:
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        harness.ask(find, 3)
        harness.settle()
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    answer = harness.ask(request, 4)
    assert answer.error_code == 0
    return int(answer.producer_id)


def write_as(harness: BrokerHarness, producer_id: int, value: bytes, sequence: int = 0) -> int:
    """Produce one idempotent batch; its offset."""
    batch = harness.batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    response = harness.ask(produce_request("t", 0, batch), 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0
    return int(answer.base_offset)


@pytest.mark.parametrize("clean", [True, False])
def test_producer_ids_begin_beyond_those_in_the_logs(clean: bool) -> None:
    """A new producer's first batch is stored, not taken for a duplicate of an older producer's."""
    harness = BrokerHarness()
    harness.create("t")
    old_id = init_producer_id(harness)
    write_as(harness, old_id, b"old")
    if clean:
        harness.close()
    else:
        harness.disk.kill()
        harness.kill()
    with without_tree(harness) as later:
        new_id = init_producer_id(later)
        assert new_id > old_id
        assert new_id % 1000 == 0, "ids are given in blocks of a thousand"
        assert write_as(later, new_id, b"new") == 1
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"old", b"new"]}
    with again(later) as third:
        assert init_producer_id(third) > new_id


def test_producer_ids_begin_beyond_those_of_transactional_producers() -> None:
    """Also where such a producer has written nothing but its line in `__transaction_state`."""
    with BrokerHarness(transaction_state_log_num_partitions=2) as harness:
        old_ids = [init_producer_id(harness, name) for name in ("a", "b", "c")]
    with without_tree(harness) as later:
        assert init_producer_id(later) > max(old_ids)
        assert init_producer_id(later, "a") == old_ids[0]
        assert init_producer_id(later, "d") > max(old_ids)


def test_an_id_that_a_client_made_up_does_not_use_up_all_others() -> None:
    """A batch may carry any producer id; above the highest there is, none is left."""
    with BrokerHarness() as harness:
        harness.create("t")
        write_as(harness, 2**63 - 1, b"made up")
        write_as(harness, 41_234, b"plausible")
    with without_tree(harness) as later:
        assert 41_234 < init_producer_id(later) < 50_000


def test_a_folder_copied_beside_a_tree_moves_its_ids() -> None:
    """Adopted by a broker that has given ids before: neither meets the other's again."""
    with BrokerHarness() as other:
        other.create("t")
        write_as(other, 5_000, b"old")
    with BrokerHarness() as harness:
        assert init_producer_id(harness) == 0
    for entry in other.disk.entries("/data/t-0"):
        harness.disk.exists("/data/t-0") or harness.disk.mkdir("/data/t-0")
        path = f"/data/t-0/{entry.name}"
        harness.disk.write_atomically(path, other.disk.read(path), sync=True)
    with again(harness) as later:
        assert "t" in later.broker.image.topics
        assert init_producer_id(later) > 5_000


def test_adopted_topics_have_their_configs_again() -> None:
    """As created, and as changed since; those with none have none."""
    with BrokerHarness() as harness:
        harness.create("compacted", 2, cleanup_policy="compact", segment_ms="5000")
        harness.create("plain")
        alter(harness, ResourceType.TOPIC, "compacted", segment_ms="100000")
    with without_tree(harness) as later:
        assert dict(later.broker.image.configs_of("compacted")) == COMPACTED
        assert later.broker.image.configs_of("plain") == {}
        assert later.broker.logs.get("compacted", 1).config.compact  # type: ignore[union-attr]


def test_configs_are_kept_of_topics_that_an_older_version_created() -> None:
    """A start with a tree writes into the folders what they lack."""
    with BrokerHarness() as harness:
        harness.create("t", cleanup_policy="compact", segment_ms="100000")
    forget_configs(harness, "t-0")
    with again(harness):
        pass
    with without_tree(harness) as later:
        assert dict(later.broker.image.configs_of("t")) == COMPACTED


def test_a_start_writes_no_configs_that_are_kept_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A normal start only reads the folders' files."""
    with BrokerHarness() as harness:
        harness.create("t", 3, cleanup_policy="compact")
        harness.create("u", 3)
    written: list[str] = []
    real = harness.disk.write_atomically

    def noted(path: str, data: bytes, *, sync: bool) -> None:
        written.append(path)
        real(path, data, sync=sync)

    monkeypatch.setattr(harness.disk, "write_atomically", noted)
    with again(harness) as later:
        later.settle()
    assert written
    assert not [path for path in written if path.endswith("partition.metadata")]


def test_a_config_that_is_not_known_is_left_out() -> None:
    """Of a folder that a newer version wrote; all others come back."""
    with BrokerHarness() as harness:
        harness.create("t", cleanup_policy="compact", segment_ms="100000")
    path = "/data/t-0/partition.metadata"
    known = harness.disk.read(path)
    harness.disk.write_atomically(path, known.replace(b"{", b'{"from.2031": "1", '), sync=True)
    with without_tree(harness) as later:
        assert dict(later.broker.image.configs_of("t")) == COMPACTED


def test_without_configs_nothing_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """A folder of Apache Kafka's does not say what its retention was: it is unlimited."""
    with BrokerHarness() as harness:
        harness.create("t", retention_ms="-1")
        harness.produce("t", 0, b"old")
    forget_configs(harness, "t-0")
    harness.advance(30 * DAY_MS)
    with caplog.at_level(logging.WARNING, "ottla.broker"), without_tree(harness) as later:
        assert dict(later.broker.image.configs_of("t")) == {
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        later.advance(10 * 60 * 1000)
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"old"]}
    assert "retention is unlimited" in caplog.text


@pytest.mark.parametrize("kept", [True, False])
def test_internal_topics_have_their_own_configs(kept: bool) -> None:
    """Whatever their folders say, offsets and transactions are compacted."""
    with BrokerHarness(
        offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1
    ) as harness:
        init_producer_id(harness, "a")
        harness.ask(FindCoordinatorRequest(key="group", key_type=0), 3)
        harness.settle()
        image = harness.broker.image
        before = {name: dict(image.configs_of(name)) for name in image.topics}
    assert set(before) == {"__consumer_offsets", "__transaction_state"}
    if not kept:
        for name in before:
            forget_configs(harness, f"{name}-0")
    with without_tree(harness) as later:
        image = later.broker.image
        assert {name: dict(image.configs_of(name)) for name in image.topics} == before
        assert all(configs["cleanup.policy"] == "compact" for configs in before.values())


def test_the_folder_of_a_recreated_topic_has_the_new_id() -> None:
    """Whatever was still to be written for the old one is not written into the new folder."""
    with BrokerHarness() as harness:
        for _ in range(3):
            harness.create("t", 3, retention_ms="1000")
            alter(harness, ResourceType.TOPIC, "t", retention_ms="2000")
            delete(harness, "t")
        topic_id = harness.create("t", 3, retention_ms="3000")
        harness.settle()
        for index in range(3):
            data = harness.disk.read(f"/data/t-{index}/partition.metadata")
            assert parse_partition_metadata(data, "t") == topic_id
            assert parse_partition_configs(data) == {"retention.ms": "3000"}


def forget_configs(harness: BrokerHarness, folder: str) -> None:
    """Leave of `partition.metadata` what Kafka writes."""
    path = f"/data/{folder}/partition.metadata"
    lines = harness.disk.read(path).splitlines()[:2]
    harness.disk.write_atomically(path, b"\n".join(lines), sync=True)


def copy_of_tree(harness: BrokerHarness) -> sqlite3.Connection:
    """The tree as it is now, for an operator to put back later."""
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    harness.disk.database("/data/coordination.db").backup(copy)
    return copy


def with_tree(harness: BrokerHarness, copy: sqlite3.Connection) -> BrokerHarness:
    """The next start, with an earlier copy of the tree."""
    copy.backup(harness.disk.database("/data/coordination.db"))
    return again(harness)


def end(harness: BrokerHarness, clean: bool) -> None:
    if clean:
        harness.close()
    else:
        harness.settle()
        harness.kill()


@pytest.mark.parametrize("clean", [True, False])
def test_an_earlier_copy_of_the_tree_gives_no_producer_id_twice(clean: bool) -> None:
    """A topic that the copy knows has ids that came after it: a new producer's batch is stored."""
    harness = BrokerHarness()
    harness.create("t")
    copy = copy_of_tree(harness)
    old_id = init_producer_id(harness)
    write_as(harness, old_id, b"old")
    end(harness, clean)
    with with_tree(harness, copy) as later:
        new_id = init_producer_id(later)
        assert new_id > old_id
        assert write_as(later, new_id, b"new") == 1


@pytest.mark.parametrize("clean", [True, False])
def test_an_earlier_copy_of_the_tree_is_brought_up_to_the_disk(clean: bool) -> None:
    """Partitions, configs and leader epochs that came after the copy are there again."""
    harness = BrokerHarness()
    harness.create("t", retention_ms="1000")
    copy = copy_of_tree(harness)
    for _ in range(2):
        harness.close()
        harness = again(harness)
    alter(harness, ResourceType.TOPIC, "t", retention_ms="-1")
    grow = [NewPartitions("t", 3)]
    assert harness.run(harness.broker.controller.create_partitions(grow))[0].error_code == 0
    harness.produce("t", 0, b"zero")
    harness.produce("t", 2, b"two")
    epoch = harness.broker.image.topics["t"].partitions[0].leader_epoch
    harness.settle()
    end(harness, clean)
    harness.advance(10 * DAY_MS)
    with with_tree(harness, copy) as later:
        later.advance(10 * 60 * 1000)
        assert later.broker.image.configs_of("t") == {"retention.ms": "-1"}
        assert later.broker.image.topics["t"].partitions[0].leader_epoch > epoch
        for index, value in ((0, b"zero"), (2, b"two")):
            assert values(later.ask(fetch_request(("t", index, 0)), 11)) == {("t", index): [value]}


def test_a_tree_that_is_put_back_after_another_was_used_is_an_earlier_copy() -> None:
    """The tree moved away, a new one used, the first put back: ids go on after the new one's."""
    harness = BrokerHarness()
    harness.create("t")
    for _ in range(50):
        alter(harness, ResourceType.TOPIC, "t", retention_ms="1000")
        alter(harness, ResourceType.TOPIC, "t", retention_ms="2000")
    copy = copy_of_tree(harness)
    harness.close()
    with without_tree(harness) as new:
        new_id = init_producer_id(new)
        write_as(new, new_id, b"new")
    with with_tree(new, copy) as later:
        assert init_producer_id(later) > new_id


def test_folders_that_are_only_named_like_partitions_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`backup-20261116`, and a partition copied to a name with a date: no topic grows by them."""
    harness = BrokerHarness()
    harness.create("t")
    harness.produce("t", 0, b"value")
    harness.close()
    disk = harness.disk
    disk.mkdir("/data/backup-20261116")
    disk.mkdir("/data/backup-7")
    for folder in ("t-20261116", "t-5", "u-20261116"):
        disk.mkdir(f"/data/{folder}")
        for entry in disk.entries("/data/t-0"):
            data = disk.read(f"/data/t-0/{entry.name}")
            disk.write_atomically(f"/data/{folder}/{entry.name}", data, sync=True)
    with caplog.at_level(logging.WARNING), again(harness) as later:
        assert [*later.broker.image.topics] == ["t"]
        assert len(later.broker.image.topics["t"].partitions) == 1
        assert values(later.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"value"]}
    for folder in ("backup-20261116", "backup-7", "t-20261116", "t-5", "u-20261116"):
        assert f"folder {folder} is left alone" in caplog.text
        assert disk.exists(f"/data/{folder}")


def test_partitions_of_a_missing_data_directory_stay_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not mounted: they do not begin empty elsewhere; mounted again, they have their records."""
    both = {"log_dirs": "/data,/two"}
    with BrokerHarness(**both) as harness:
        harness.create("t", 2)
        for index in range(2):
            harness.produce("t", index, b"value")
    disk = harness.disk
    (folder,) = (entry.name for entry in disk.entries("/two") if entry.is_directory)
    lost = int(folder[-1])
    disk.rename("/two", "/away")
    for _ in range(2):
        with again(harness, **both) as without:
            assert without.produce("t", 1 - lost, b"more").error_code == 0
            assert without.produce("t", lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            without.create("new", 2)
            assert without.produce("new", 1).error_code == 0
            without.run(without.broker.controller.delete_topics([TopicRef("new")]))
        assert f"1 partitions are offline (t-{lost}): data directory /two is missing" in caplog.text
    disk.rmtree("/two")
    disk.rename("/away", "/two")
    with again(harness, **both) as later:
        assert values(later.ask(fetch_request(("t", lost, 0)), 11)) == {("t", lost): [b"value"]}
    disk.rename(f"/two/{folder}", f"/data/{folder}")
    with again(harness) as moved:
        assert values(moved.ask(fetch_request(("t", lost, 0)), 11)) == {("t", lost): [b"value"]}


def test_a_lost_folder_begins_empty_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """No data directory is missing, so the records are gone for good: the partition goes on."""
    with BrokerHarness() as harness:
        harness.create("t")
        harness.produce("t", 0, b"value")
    harness.disk.rmtree("/data/t-0")
    with again(harness) as later:
        assert later.produce("t", 0).base_offset == 0
    assert "1 partitions have no folder and begin empty: t-0" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_cannot_be_read_for_producer_ids_is_offline_alone(
    clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start goes on, and the others are served."""
    harness = BrokerHarness()
    for topic in ("t", "u"):
        harness.create(topic)
        harness.produce(topic, 0, b"value")
    end(harness, clean)
    read = used_producer_ids.highest_producer_id

    def failing(log: Log) -> int:
        if log.topic == "t":
            raise OSError(errno.EIO, "on purpose")
        return read(log)

    monkeypatch.setattr(used_producer_ids, "highest_producer_id", failing)
    with without_tree(harness) as later:
        assert later.produce("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert later.produce("u", 0).base_offset == 1


def test_a_checkpoint_of_the_tree_that_cannot_be_written_stops_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk an operator must be able to delete topics."""
    harness = BrokerHarness()
    harness.create("t")
    harness.close()
    write = SimulatedDisk.write_atomically

    def full(disk: SimulatedDisk, path: str, data: bytes, *, sync: bool) -> None:
        if path.endswith("metadata-checkpoint"):
            raise OSError(errno.ENOSPC, "on purpose")
        write(disk, path, data, sync=sync)

    monkeypatch.setattr(SimulatedDisk, "write_atomically", full)
    with again(harness) as later:
        assert later.produce("t", 0).error_code == 0
        # No id is given out that an earlier copy of the tree could give again unnoticed.
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        assert later.ask(request, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "metadata-checkpoint cannot be written" in caplog.text
