"""Folders of deleted topics that the disk does not let go: who is answered, what comes later."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.metadata_applier import DELETE_AGAIN_S
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness, fetch_request, values
from tests.broker.test_fetch import delete
from tests.broker.test_metadata_applier import folders


@pytest.mark.parametrize("part", ["/a-0", "recovery-point-offset-checkpoint"])
def test_a_topic_that_cannot_be_deleted_stops_no_other(part: str) -> None:
    """Readers of all deleted topics are answered, each can be created again with a new log, and
    what was left on the disk is gone after the next start.
    """
    harness = BrokerHarness()
    for topic in ("a", "b", "c"):
        harness.create(topic)
        harness.produce(topic)
    waiting = [harness.post(fetch_request((t, 0, 1), max_wait_ms=9000), 11) for t in ("b", "c")]
    harness.disk.fail("rename", part, errno.ENOSPC)
    request = DeleteTopicsRequest(topic_names=["a", "b", "c"], timeout_ms=1000)
    assert [each.error_code for each in harness.ask(request, 5).responses] == [0, 0, 0]
    harness.settle()
    assert all(answer.ready for answer in waiting)
    harness.disk.heal()
    harness.create("b")
    assert harness.produce("b").base_offset == 0
    harness.close()
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
        assert folders(again) == ["b-0"]
        again.create("a")
        assert again.produce("a").base_offset == 0


@pytest.mark.parametrize("times", [1, None])
def test_nothing_is_written_into_the_folder_of_a_deleted_topic(times: int | None) -> None:
    """A topic created again while its old folder cannot be removed takes no records until it is,
    at the latest at the next start; what it takes is there after that.
    """
    harness = BrokerHarness()
    harness.create("a")
    harness.produce("a", 0, b"old")
    harness.advance(1000)  # the topic's id is in its folder
    harness.disk.fail("rename", "/a-0", errno.EIO, times=times)
    delete(harness, "a")
    harness.create("a")
    taken = [b"new"] if harness.produce("a", 0, b"new").error_code == 0 else []
    assert bool(taken) == (times == 1)
    harness.disk.heal()
    assert values(harness.ask(fetch_request(("a", 0, 0)), 11)) == {("a", 0): taken}
    harness.close()
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
        assert values(again.ask(fetch_request(("a", 0, 0)), 11)) == {("a", 0): taken}
        assert again.produce("a", 0, b"last").base_offset == len(taken)


def test_a_deletion_that_fails_is_tried_again() -> None:
    """Without a start or another change. A topic that was created again meanwhile, and had no place
    for its log, takes records then.
    """
    with BrokerHarness() as harness:
        for topic in ("a", "b"):
            harness.create(topic)
        harness.advance(1000)  # the topics' ids are in their folders
        harness.disk.fail("rename", "-0", errno.EIO)
        for topic in ("a", "b"):
            delete(harness, topic)
        harness.create("a")
        assert harness.produce("a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        harness.advance(DELETE_AGAIN_S * 1000)  # fails again
        assert sorted(harness.broker.image.deletions.values()) == ["a", "b"]
        harness.disk.heal()
        harness.advance(DELETE_AGAIN_S * 1000)
        harness.settle()
        assert not harness.broker.image.deletions
        assert folders(harness) == ["a-0"]
        assert harness.produce("a").base_offset == 0


def test_a_deletion_is_confirmed_when_it_is_on_the_device() -> None:
    """The sync of the data directory failed once: no power cut may bring the folder back."""
    with BrokerHarness() as harness:
        harness.create("a")
        harness.advance(1000)
        harness.disk.fail("sync", "/data", errno.EIO)
        delete(harness, "a")
        harness.settle()
        assert harness.broker.image.deletions
        harness.disk.heal()
        harness.advance(DELETE_AGAIN_S * 1000)
        harness.settle()
        assert not harness.broker.image.deletions
        harness.disk.crash(1)
        assert folders(harness) == []
