"""Consumers that share topics: rebalances of all kinds, with each other and with other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla import (
    AsyncConsumerRebalanceListener,
    Consumer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from ottla.client import errors
from ottla.client.assignors import Assignment, Assignor, Member
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from tests.client.group_members import FAST, Polling, confluent, fill, ours, split
from tests.waiting import ends, eventually


class Seen(ConsumerRebalanceListener):
    """Records the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(each.partition for each in revoked)))

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(each.partition for each in assigned)))

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(each.partition for each in lost)))


def test_two_members_share_and_one_takes_over(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """The second member gets its share; when it closes the first has all again; every record is
    seen exactly once, because partitions are committed before they go."""
    make_topic(topic, 4)
    fill(any_bootstrap, topic, 4)
    seen = Seen()
    members.append(ours(any_bootstrap, topic, seen))
    eventually(lambda: len(members[0].records) == 80, "the first reads all")
    members.append(ours(any_bootstrap, topic))
    eventually(lambda: split(members, 4) and len(members[1].assigned()) == 2, "an even share")
    fill(any_bootstrap, topic, 4, start=20)
    eventually(lambda: sum(len(each.records) for each in members) == 160, "both read")
    members[1].stop()
    eventually(lambda: members[0].assigned() == {0, 1, 2, 3}, "the first takes over")
    fill(any_bootstrap, topic, 4, start=40)
    everything = [(p, n) for p in range(4) for n in range(60)]
    eventually(lambda: sorted(members[0].records + members[1].records) == everything, "once each")
    members[0].stop()
    assert seen.calls[0] == ("assigned", [0, 1, 2, 3])
    assert seen.calls[1] == ("revoked", [0, 1, 2, 3])
    assert seen.calls[-1] == ("revoked", [0, 1, 2, 3])


def test_cooperative_members_go_on_meanwhile(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """With cooperative-sticky only what moves is revoked, in one group with confluent-kafka too."""
    make_topic(topic, 6)
    seen = Seen()
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    members.append(ours(any_bootstrap, topic, seen, **options))
    eventually(lambda: members[0].assigned() == set(range(6)), "all at first")
    members.append(confluent(any_bootstrap, topic, "cooperative-sticky"))
    eventually(lambda: split(members, 6) and len(members[1].assigned()) == 3, "an even share")
    kept = members[0].assigned()
    members.append(ours(any_bootstrap, topic, **options))
    eventually(
        lambda: split(members, 6) and all(len(each.assigned()) == 2 for each in members),
        "three shares",
    )
    assert members[0].assigned() <= kept
    fill(any_bootstrap, topic, 6)
    wanted = {(p, n) for p in range(6) for n in range(20)}
    eventually(lambda: {each for m in members for each in m.records} == wanted, "all records")
    for each in members:
        each.stop()
    assert seen.calls[0] == ("assigned", [0, 1, 2, 3, 4, 5])
    revoked = [numbers for what, numbers in seen.calls if what == "revoked"]
    assert len(revoked[0]) == 3
    assert len(revoked[1]) == 1


def test_sticky_members_keep_what_they_had(
    bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """With sticky the first keeps half of its partitions when the second comes."""
    make_topic(topic, 4)
    members.append(ours(bootstrap, topic, partition_assignment_strategy="sticky"))
    eventually(lambda: members[0].assigned() == {0, 1, 2, 3})
    members.append(ours(bootstrap, topic, partition_assignment_strategy="sticky"))
    eventually(lambda: split(members, 4) and len(members[1].assigned()) == 2)
    before = [each.assigned() for each in members]
    members.append(ours(bootstrap, topic, partition_assignment_strategy="sticky"))
    eventually(lambda: split(members, 4) and len(members[2].assigned()) == 1)
    assert sum(len(each.assigned() & had) for each, had in zip(members, before, strict=False)) == 3
    for each in members:
        each.stop()


def test_a_static_member_comes_back_to_its_partitions(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """A member with a group_instance_id that restarts within its session moves nobody; another
    with the same id takes its place, and the first is fenced."""
    make_topic(topic, 4)
    others = Seen()
    members.append(ours(any_bootstrap, topic, others, group_instance_id="one"))
    members.append(ours(any_bootstrap, topic, group_instance_id="two"))
    eventually(lambda: split(members, 4) and len(members[1].assigned()) == 2)
    had, calls = members[1].assigned(), len(others.calls)
    members[1].stop()
    members[1] = ours(any_bootstrap, topic, group_instance_id="two")
    eventually(lambda: members[1].assigned() == had, "back again")
    time.sleep(0.3)
    assert len(others.calls) == calls
    members.append(ours(any_bootstrap, topic, group_instance_id="two"))
    eventually(lambda: members[2].assigned() == had, "the new one has it")
    eventually(lambda: members[1].problem is not None, "the old one is fenced")
    assert isinstance(members[1].problem, errors.FencedInstanceIdError)
    assert "of its own" in str(members[1].problem)


def test_a_member_that_does_not_poll_is_out(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """After max_poll_interval_ms the partitions go to others; the late one cannot commit, is called
    that they are lost, and comes back with its next polls."""
    make_topic(topic, 2)
    fill(any_bootstrap, topic, 2)
    seen = Seen()
    slow = Consumer(
        bootstrap_servers=any_bootstrap,
        group_id=f"g-{topic}",
        **{**FAST, "max_poll_interval_ms": 500, "enable_auto_commit": False},
    )
    slow.subscribe([topic], listener=seen)
    eventually(lambda: bool(slow.poll(50)), "the first records")
    members.append(ours(any_bootstrap, topic))
    eventually(lambda: members[0].assigned() == {0, 1}, "the other has all")
    with pytest.raises(errors.CommitFailedError, match="max_poll_records"):
        slow.commit()
    eventually(lambda: slow.poll(50) is not None and len(slow.assignment()) == 1, "back again")
    assert ("lost", [0, 1]) in seen.calls
    slow.close()
    members[0].stop()


def test_a_pattern_finds_topics_that_come_later(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """A pattern subscribes to what matches now and later, never to internal topics."""
    make_topic(f"{topic}-one", 1)
    consumer = Consumer(
        bootstrap_servers=any_bootstrap,
        group_id=f"g-{topic}",
        **{**FAST, "metadata_max_age_ms": 200},
    )
    consumer.subscribe(pattern=f"{topic}-.*|__consumer_offsets")
    eventually(lambda: consumer.poll(50) is not None and len(consumer.assignment()) == 1)
    make_topic(f"{topic}-two", 2)
    eventually(lambda: consumer.poll(50) is not None and len(consumer.assignment()) == 3)
    assert consumer.subscription() == {f"{topic}-one", f"{topic}-two"}
    consumer.close()


def test_new_partitions_are_shared_out(
    any_bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """When a topic grows, the group divides anew and reads the new partitions from their start."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    make_topic(topic, 1)
    members.append(ours(any_bootstrap, topic, metadata_max_age_ms=200))
    eventually(lambda: members[0].assigned() == {0})
    admin = AdminClient({"bootstrap.servers": any_bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    fill(any_bootstrap, topic, 3)
    eventually(lambda: len(members[0].records) == 60, "all records")
    members[0].stop()


def test_a_rule_of_ones_own(
    bootstrap: str, topic: str, make_topic: Callable[..., None], members: list[Polling]
) -> None:
    """A user's assignor divides; one that gives a partition twice is refused with its name."""

    class AllToTheLast(Assignor):
        name = "all-to-the-last"

        def assign(
            self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
        ) -> Assignment:
            every = [TopicPartition(t, n) for t, numbers in partitions.items() for n in numbers]
            return {max(members): every}

    class Wrong(AllToTheLast):
        name = "wrong"

        def assign(
            self, partitions: Mapping[str, Sequence[int]], members: Mapping[str, Member]
        ) -> Assignment:
            result = super().assign(partitions, members)
            return {member: got * 2 for member, got in result.items()}

    make_topic(topic, 3)
    rule = {"partition_assignment_strategy": [AllToTheLast]}
    members += [ours(bootstrap, topic, **rule), ours(bootstrap, topic, **rule)]
    eventually(lambda: split(members, 3))
    assert sorted(len(each.assigned()) for each in members) == [0, 3]
    wrong = Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"wrong-{topic}",
        partition_assignment_strategy=[Wrong()],
    )
    with pytest.raises(errors.KafkaError, match="assignor 'wrong'"):
        wrong.poll(60_000)
    wrong.close()
    for each in members:
        each.stop()


def test_the_listener_may_seek_and_ask(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """In on_partitions_assigned positions can be asked and sought; what is read obeys."""
    make_topic(topic, 1)
    fill(bootstrap, topic, 1)
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=f"g-{topic}", **FAST)
    asked: list[int | None] = []

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            for each in assigned:
                asked.append(consumer.position(each))
                consumer.seek(each, 15)

    consumer.subscribe([topic], listener=Seeking())
    found: list[int] = []

    def five() -> bool:
        found.extend(each.offset for got in consumer.poll(50).values() for each in got)
        return len(found) >= 5

    eventually(five)
    assert (asked, found) == ([0], [15, 16, 17, 18, 19])
    consumer.close()
    other = Consumer(topic, bootstrap_servers=bootstrap, group_id=f"g-{topic}", **FAST)
    assert other.committed(TopicPartition(topic, 0)) == 20
    other.unsubscribe()
    assert other.assignment() == set()
    other.close()


def test_close_while_joining_does_not_hang(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """A member that waits for another in a rebalance can be closed at once."""
    make_topic(topic, 2)
    first = Consumer(topic, bootstrap_servers=bootstrap, group_id=f"g-{topic}", **FAST)
    eventually(lambda: first.poll(50) is not None and len(first.assignment()) == 2)
    second = Consumer(topic, bootstrap_servers=bootstrap, group_id=f"g-{topic}", **FAST)
    second.poll(200)  # waits for the first, which does not poll
    ends(lambda: second.close(timeout_ms=600_000))
    ends(lambda: first.close(timeout_ms=600_000))


def test_a_listener_of_coroutines_is_run_to_its_end(
    bootstrap: str, topic: str, make_topic: Callable[..., None]
) -> None:
    """kafka-python's AsyncConsumerRebalanceListener, with a consumer that is not asynchronous."""
    calls: list[str] = []

    class Listener(AsyncConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append(f"revoked {len(revoked)}")

        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append(f"assigned {len(assigned)}")

    make_topic(topic, 2)
    with Consumer(bootstrap_servers=bootstrap, group_id=f"g-{topic}", **FAST) as consumer:
        consumer.subscribe([topic], listener=Listener())
        eventually(lambda: consumer.poll(50) is not None and bool(calls))
    assert calls == ["assigned 2", "revoked 2"]


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\3\xff\xff\xff\xff\xff"])
def test_a_member_that_makes_no_sense_is_named(bootstrap: str, topic: str, metadata: bytes) -> None:
    """Somebody else's program in the group: the leader's poll says so, again and again, and goes on
    when it is gone."""
    group = f"g-{topic}"
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=group, **FAST) as consumer:
        eventually(lambda: consumer.poll(50) is not None and bool(consumer.assignment()))
        client = consumer._client
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=6000, rebalance_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )  # fmt: skip
        node_id = client.wait(client.coordinator(group), 5000)
        given = client.wait(client.submit(node_id, request, channel="odd"), 5000)
        request.member_id = given.member_id
        joined = client.submit(node_id, request, channel="odd")
        with pytest.raises(errors.KafkaError, match=f"{given.member_id}.*cannot be read"):
            eventually(lambda: consumer.poll(50) is None)
        assert client.wait(joined, 5000).error_code == 0
        leaving = LeaveGroupRequest(
            group_id=group, member_id=given.member_id,
            members=[MemberIdentity(member_id=given.member_id)],
        )  # fmt: skip
        client.wait(client.submit(node_id, leaving, channel="odder"), 5000)

        def works() -> bool:
            try:
                consumer.poll(50)
            except errors.KafkaError:
                return False
            return bool(consumer.assignment())

        eventually(works)
