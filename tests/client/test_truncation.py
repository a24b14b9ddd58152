"""A log that was cut below a consumer (KIP-320): it is noticed, and nothing is skipped silently."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Consumer, OffsetAndMetadata, Producer, TopicPartition
from ottla.client import errors
from ottla.client.consumer import epoch_validation as validation
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import batch_bounds
from tests.client.reading import read_values
from tests.client.scripted_log import EPOCH_END, TOPIC, ScriptedLog

PARTITION = TopicPartition(TOPIC, 0)
WAIT_S = 60
OLD = [(1, b"a"), (1, b"b"), (2, b"c"), (2, b"d")]


def consumer_of(place: str, **options: Any) -> Consumer:
    consumer: Consumer = Consumer(
        bootstrap_servers=place,
        retry_backoff_ms=10,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )
    consumer.assign([PARTITION])
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes]:
    """So many values."""
    return read_values(consumer, count, wait_s=WAIT_S)


@pytest.fixture
def broker() -> Iterator[ScriptedLog]:
    """A log of two epochs under a leader of the second."""
    with ScriptedLog(list(OLD), leader_epoch=2) as made:
        yield made


def test_a_new_leader_with_the_same_log_is_read_on(broker: ScriptedLog) -> None:
    """After a change of leader the position is looked at once, and stays."""
    with consumer_of(broker.bootstrap) as consumer:
        assert read(consumer, 4) == [b"a", b"b", b"c", b"d"]
        asked = broker.questions
        broker.log.append((3, b"e"))
        broker.leader_epoch = 3
        assert read(consumer, 1) == [b"e"]
        assert broker.questions == asked + 1
        assert consumer.position(PARTITION) == 5


def test_a_cut_log_is_read_again_from_where_it_was_cut(broker: ScriptedLog) -> None:
    """Other records stand where some were read before: they are given, none is skipped."""
    with consumer_of(broker.bootstrap) as consumer:
        assert read(consumer, 4) == [b"a", b"b", b"c", b"d"]
        broker.log[3:] = [(3, b"D"), (3, b"E")]
        broker.leader_epoch = 3
        assert read(consumer, 2) == [b"D", b"E"]
        assert consumer.position(PARTITION) == 5


def test_without_a_policy_the_error_says_where_the_logs_part(broker: ScriptedLog) -> None:
    """LogTruncationError, by every poll, until the caller has sought another place."""
    with consumer_of(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.seek_to_beginning()
        assert len(read(consumer, 4)) == 4
        broker.log[2:] = [(3, b"C")]
        broker.leader_epoch = 3
        for _ in range(2):
            with pytest.raises(errors.LogTruncationError, match=r"cut below offset 4") as caught:
                read(consumer, 1)
        fork = caught.value.divergent_offsets[PARTITION]
        assert fork == OffsetAndMetadata(2, "", 1)
        assert "seek(partition, 2)" in str(caught.value)
        consumer.seek(PARTITION, fork)
        assert read(consumer, 1) == [b"C"]


def test_what_was_cut_does_not_matter_after_it_was_given_up(broker: ScriptedLog) -> None:
    """A partition that comes again begins anew."""
    with consumer_of(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.seek_to_beginning()
        assert len(read(consumer, 4)) == 4
        broker.log[2:] = [(3, b"C")]
        broker.leader_epoch = 3
        with pytest.raises(errors.LogTruncationError):
            read(consumer, 1)
        consumer.unsubscribe()
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 2)
        assert read(consumer, 1) == [b"C"]


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_an_epoch_that_the_leader_never_had(broker: ScriptedLog, policy: str) -> None:
    """Nobody knows where the logs part: the policy decides, or the caller."""
    with consumer_of(broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.seek_to_beginning()
        assert len(read(consumer, 4)) == 4
        broker.log[:] = [(3, b"new")]
        broker.leader_epoch = 3
        if policy == "earliest":
            assert read(consumer, 1) == [b"new"]
        else:
            with pytest.raises(errors.LogTruncationError, match="seek_to_beginning") as caught:
                read(consumer, 1)
            assert caught.value.divergent_offsets == {PARTITION: None}


def test_what_was_only_fetched_ahead_is_dropped(broker: ScriptedLog) -> None:
    """The caller has not got there yet: he goes on, and gets what is true now."""
    with consumer_of(broker.bootstrap, max_poll_records=1) as consumer:
        assert read(consumer, 1) == [b"a"]
        deadline = time.monotonic() + WAIT_S
        while consumer.highwater(PARTITION) != 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        broker.log[2:] = [(3, b"C")]
        broker.leader_epoch = 3
        while not consumer._positions.validation.forks and time.monotonic() < deadline:
            time.sleep(0.01)
        assert read(consumer, 2) == [b"b", b"C"]
        assert consumer.position(PARTITION) == 3


@pytest.mark.parametrize(
    ("committed", "expected"),
    [((3, 2), [b"d"]), ((2, 1), [b"c", b"d"]), ((4, 1), [b"c", b"d"]), ((4, -1), [])],
)
def test_a_committed_offset_is_looked_at_by_its_epoch(
    broker: ScriptedLog, committed: tuple[int, int], expected: list[bytes]
) -> None:
    """A group's offset from a log that was cut is noticed too; without an epoch nobody can know."""
    broker.committed = committed
    with consumer_of(broker.bootstrap, group_id="g") as consumer:
        assert consumer.position(PARTITION) == committed[0]
        if not expected:
            consumer.poll(100)
            assert broker.questions == 0
        assert read(consumer, len(expected)) == expected


def test_the_epoch_behind_a_marker_is_the_markers(broker: ScriptedLog) -> None:
    """A commit behind a marker of a new epoch has that epoch, or its reader would see a cut."""
    broker.log.append((3, None))
    broker.leader_epoch = 3
    with consumer_of(broker.bootstrap, group_id="g", auto_offset_reset="none") as consumer:
        consumer.seek_to_beginning()
        assert len(read(consumer, 4)) == 4
        deadline = time.monotonic() + WAIT_S
        while consumer.position(PARTITION) < 5 and time.monotonic() < deadline:
            consumer.poll(20)
        consumer.commit()
    assert broker.committed == (5, 3)
    with consumer_of(broker.bootstrap, group_id="g", auto_offset_reset="none") as consumer:
        broker.log.append((3, b"e"))
        assert read(consumer, 1) == [b"e"]


def test_a_position_newer_than_the_metadata_waits_for_newer_metadata(broker: ScriptedLog) -> None:
    """A stale leader must not be asked about an epoch that it cannot know of."""
    broker.committed = (3, 2)
    broker.metadata_epoch = 1
    with consumer_of(broker.bootstrap, group_id="g") as consumer:
        assert consumer.position(PARTITION) == 3
        consumer.poll(200)
        assert broker.questions == 0
        broker.metadata_epoch = None
        assert read(consumer, 1) == [b"d"]


def test_metadata_that_stays_old_is_used_in_the_end(
    broker: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was made anew, with epochs from the beginning: the position is of another log."""
    monkeypatch.setattr(validation, "STALE_S_MAX", 0.2)
    broker.log, broker.leader_epoch = [(0, b"new")], 0
    broker.committed = (3, 2)
    with consumer_of(broker.bootstrap, group_id="g") as consumer:
        assert read(consumer, 1) == [b"new"]


def test_the_question_is_asked_again_until_it_is_answered(broker: ScriptedLog) -> None:
    """Errors that pass are retried; one that does not is raised."""
    broker.refusals = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    broker.committed = (3, 2)
    with consumer_of(broker.bootstrap, group_id="g") as consumer:
        assert read(consumer, 1) == [b"d"]
        assert broker.questions == 4
    broker.refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with (
        consumer_of(broker.bootstrap, group_id="g") as consumer,
        pytest.raises(errors.TopicAuthorizationFailedError),
    ):
        read(consumer, 1)


def test_a_broker_that_cannot_be_asked_is_believed(broker: ScriptedLog) -> None:
    """Before version 3 the question was not a consumer's to ask."""
    broker.advertised[EPOCH_END] = (0, 2)
    broker.committed = (4, 1)
    with consumer_of(broker.bootstrap, group_id="g") as consumer:
        consumer.poll(100)
        broker.log.append((2, b"e"))
        assert read(consumer, 1) == [b"e"]
    assert broker.questions == 0


def test_a_broker_that_lost_the_end_of_its_log(tmp_path: Path) -> None:
    """On a live broker whose file was cut while it was down: the consumer notices after the
    restart, though the new log is longer than the old one by then."""
    with Broker(directory=tmp_path) as server:
        place = server.bootstrap_servers
        with Producer(bootstrap_servers=place) as producer:
            for n in range(6):
                producer.send(TOPIC, b"old-%d" % n, partition=0).get(WAIT_S)
        consumer = consumer_of(place, group_id="lost")
        with consumer:
            assert len(read(consumer, 6)) == 6
            consumer.commit()
            server.kill()
            cut(server.directory / f"{TOPIC}-0" / "00000000000000000000.log", batches=4)
            server.start()
            with Producer(bootstrap_servers=place) as producer:
                for n in range(4, 10):
                    producer.send(TOPIC, b"new-%d" % n, partition=0).get(WAIT_S)
            assert read(consumer, 6) == [b"new-%d" % n for n in range(4, 10)]
        # The commit was of the old log; who begins from it notices as well.
        with consumer_of(place, group_id="lost") as another:
            assert another.committed(PARTITION) == 6
            assert read(another, 6) == [b"new-%d" % n for n in range(4, 10)]


def cut(path: Path, *, batches: int) -> None:
    """Leave only so many batches in a segment."""
    data = path.read_bytes()
    ends = [end for _, end in batch_bounds(memoryview(data))]
    path.write_bytes(data[: ends[batches - 1]])
