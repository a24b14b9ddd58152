"""How long a change of leaders holds up the replicas: by what the network takes, by no pause."""

from __future__ import annotations

from tests.replica.brokers import Brokers

# Two ways to the leader and back, and the feed: far below any of Kafka's intervals.
PROMPT_S = 0.05


def test_a_partition_added_during_a_fetch_is_asked_for_at_once() -> None:
    """The fetch under way would wait for replica.fetch.wait.max.ms, 500 ms; it is overtaken."""
    with Brokers(3, partitions=2) as brokers:
        brokers.lead(1, 0)
        brokers.run(2)
        brokers.lead(1, 1)
        answer = brokers.produce(1, b"value", index=1)
        assert brokers.run_until(lambda: answer.ready) < PROMPT_S


def test_a_leader_that_is_behind_the_feed_is_asked_again_soon() -> None:
    """UNKNOWN_LEADER_EPOCH passes within milliseconds; replica.fetch.backoff.ms is 1000."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.run(1)
        brokers.script.feed_s[2] = 0.2
        brokers.lead(2)
        answer = brokers.produce(2, b"value")
        assert brokers.run_until(lambda: answer.ready) < 0.2


def test_a_killed_leader_holds_up_nobody_once_the_controller_has_decided() -> None:
    """The next leader commits as soon as its follower knows it."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"before")
        brokers.crash(1)
        brokers.run(0.3)
        brokers.lead(2, isr=(2, 3))
        answer = brokers.produce(2, b"after")
        assert brokers.run_until(lambda: answer.ready) < PROMPT_S
        assert brokers.read(2) == [b"before", b"after"]


def test_a_leader_that_comes_back_is_asked_at_once() -> None:
    """Its followers' pause after the lost connection ends when it is elected again."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"before")
        brokers.crash(1)
        brokers.run(30)
        brokers.start(1)
        brokers.lead(1)
        answer = brokers.produce(1, b"after")
        assert brokers.run_until(lambda: answer.ready) < PROMPT_S


def test_the_high_watermark_reaches_the_followers_at_once() -> None:
    """A fetch that waits at the leader is answered when the watermark in it is old."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        brokers.run(2)
        brokers.produced(1, b"value")
        passed_s = brokers.run_until(
            lambda: all(brokers.at(each).high_watermark == 1 for each in (2, 3))
        )
        assert passed_s < PROMPT_S


def test_idle_followers_wait_at_the_leader() -> None:
    """One fetch in replica.fetch.wait.max.ms, whatever the number of partitions."""
    with Brokers(2, partitions=8) as brokers:
        for index in range(8):
            brokers.lead(1, index)
        brokers.run(5)
        (fetcher,) = brokers.brokers[2].replication.fetchers
        before = fetcher.number
        brokers.run(10)
        assert 15 <= fetcher.number - before <= 20


def test_the_watermark_starts_from_its_checkpoint() -> None:
    """replica.high.watermark.checkpoint.interval.ms: what was committed then is known after a
    crash, before any fetch."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        for number in range(3):
            brokers.produced(1, b"%d" % number)
        brokers.run(6)
        brokers.produced(1, b"after the checkpoint")
        brokers.crash(2)
        brokers.cut(2)
        brokers.start(2)
        assert (brokers.at(2).high_watermark, brokers.at(2).end_offset) == (3, 4)


def test_a_leader_that_is_behind_the_feed_holds_up_no_other_partition() -> None:
    """The fetch that names an epoch which the leader does not know acknowledges others too."""
    with Brokers(3, partitions=2) as brokers:
        brokers.lead(1, 0)
        brokers.lead(2, 1)
        brokers.run(1)
        brokers.script.feed_s[1] = 0.4
        brokers.script.decide(1, leader=1)
        brokers.run_until(lambda: all(brokers.at(each, 1).leader_id == 1 for each in (2, 3)))
        assert brokers.at(1, 1).leader_id == 2
        answer = brokers.produce(1, b"value", index=0)
        assert brokers.run_until(lambda: answer.ready) < PROMPT_S
        assert brokers.at(1, 1).leader_id == 2
