"""When what a broker knows about leaders is in doubt, because connections were lost."""

from __future__ import annotations

from ottla.broker.lost_brokers import DOUBT_S, NEW_LOSS_S, LostBrokers
from ottla.cluster.image import (
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicImage,
)
from ottla.seams.clock import ManualClock

TOPIC_ID = b"t" * 16


def image(leader: int) -> ClusterImage:
    partition = PartitionImage(0, leader, 0, 0, (2, 3), (2, 3))
    return ClusterImage().apply(1, [TopicCreated(TopicImage("t", TOPIC_ID, (partition,)), {})])


def test_only_leaders_that_were_just_lost_are_in_doubt() -> None:
    """And only until others lead, the broker answers, or the time is up."""
    clock = ManualClock()
    lost = LostBrokers(clock.monotonic)
    assert not lost.may_change(image(2))
    lost.lost(2)
    assert lost.may_change(image(2))
    assert not lost.may_change(image(3))
    partition = PartitionImage(0, 3, 1, 1, (2, 3), (3,))
    changed = image(2).apply(2, [PartitionsChanged("t", TOPIC_ID, (partition,))])
    assert not lost.may_change(changed)
    assert lost.may_change(image(2))
    lost.answered(2)
    assert not lost.may_change(image(2))
    lost.lost(2)
    clock.advance(DOUBT_S * 1000 + 1)
    assert not lost.may_change(image(2))


def test_a_broker_that_stays_away_is_doubted_once() -> None:
    """Each refused connection is no news, or every request would wait."""
    clock = ManualClock()
    lost = LostBrokers(clock.monotonic)
    for _ in range(10):
        lost.lost(2)
        clock.advance(DOUBT_S * 1000)
    assert not lost.may_change(image(2))
    clock.advance(NEW_LOSS_S * 1000)
    lost.lost(2)
    assert lost.may_change(image(2))
