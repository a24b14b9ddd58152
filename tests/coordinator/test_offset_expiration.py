"""When a committed offset expires (KIP-211), as a table."""

from __future__ import annotations

import pytest

from ottla.coordinator import offset_upkeep
from ottla.coordinator.effects import Effects, Record
from ottla.coordinator.group import COMPLETING, EMPTY, PREPARING, STABLE, Group, GroupState, Member
from ottla.coordinator.group_shard import GroupShard, OffsetRules
from ottla.coordinator.offset_expiration import expired_offsets
from ottla.coordinator.offset_upkeep import DELETION_TIMER, EXPIRY_SLICE_GROUPS, EXPIRY_TIMER
from ottla.coordinator.offsets import NO_EXPIRY, Committed, offset_record
from ottla.coordinator.rebalance import GroupRules
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription, write_versioned

RETENTION_MS = 1000
NOW_MS = 100_000
KEPT, GONE = False, True
OLD, NEW = NOW_MS - RETENTION_MS, NOW_MS - RETENTION_MS + 1


def group_of(
    state: GroupState, kind: str | None = "consumer", since_ms: int = -1, topics: str = "t"
) -> Group:
    group = Group("g")
    group.protocol_type = kind
    group.state = state
    group.state_since_ms = since_ms
    if state is not EMPTY:
        metadata = write_versioned(ConsumerProtocolSubscription(topics=[topics]), 0)
        group.protocol_name = "range"
        group.add(
            Member(
                "m",
                instance_id=None,
                client_id="",
                client_host="",
                rebalance_timeout_ms=1,
                session_timeout_ms=1,
                protocols={"range": metadata},
            )
        )
    return group


@pytest.mark.parametrize(
    ("group", "committed_ms", "expires_ms", "outcome"),
    [
        (group_of(EMPTY, None), OLD, NO_EXPIRY, GONE),
        (group_of(EMPTY, None), NEW, NO_EXPIRY, KEPT),
        (group_of(EMPTY, None, since_ms=NEW), OLD, NO_EXPIRY, GONE),
        (group_of(EMPTY, since_ms=OLD), NEW, NO_EXPIRY, GONE),
        (group_of(EMPTY, since_ms=NEW), 0, NO_EXPIRY, KEPT),
        (group_of(EMPTY), OLD, NO_EXPIRY, GONE),
        (group_of(EMPTY), NEW, NO_EXPIRY, KEPT),
        (group_of(STABLE), 0, NO_EXPIRY, KEPT),
        (group_of(STABLE, topics="other"), OLD, NO_EXPIRY, GONE),
        (group_of(STABLE, topics="other"), NEW, NO_EXPIRY, KEPT),
        (group_of(PREPARING, topics="other"), 0, NO_EXPIRY, KEPT),
        (group_of(COMPLETING, topics="other"), 0, NO_EXPIRY, KEPT),
        (group_of(STABLE, "connect", topics="other"), 0, NO_EXPIRY, KEPT),
        (group_of(EMPTY, "connect", since_ms=OLD), 0, NO_EXPIRY, GONE),
        (group_of(EMPTY, None), 0, NOW_MS + 1, KEPT),
        (group_of(EMPTY, None), NEW, NOW_MS, GONE),
        (group_of(EMPTY, since_ms=NEW), NEW, NOW_MS - 1, GONE),
        (group_of(STABLE), 0, NOW_MS - 1, KEPT),
        (group_of(STABLE, topics="other"), NEW, NOW_MS - 1, GONE),
        (group_of(STABLE, "connect"), 0, NOW_MS - 1, KEPT),
    ],
)
def test_what_expires(group: Group, committed_ms: int, expires_ms: int, outcome: bool) -> None:
    """After the group is empty; per topic where it no longer subscribes; never while in use."""
    offsets = {("t", 0): Committed(5, -1, "", committed_ms, expires_ms)}
    gone = expired_offsets(group, offsets, now_ms=NOW_MS, retention_ms=RETENTION_MS)
    assert gone == ([("t", 0)] if outcome else [])


def test_unreadable_subscriptions_keep_everything() -> None:
    """If a group's subscription is not known, none of its offsets expires."""
    group = group_of(STABLE, topics="other")
    group.members["m"].protocols["range"] = b"x"
    offsets = {("t", 0): Committed(5, -1, "", 0)}
    assert not expired_offsets(group, offsets, now_ms=NOW_MS, retention_ms=RETENTION_MS)


def shard_with(groups: int) -> GroupShard:
    shard = GroupShard(GroupRules(), OffsetRules(retention_ms=RETENTION_MS))
    for number in range(groups):
        record = offset_record(f"g{number}", "t", 0, Committed(5, -1, "", OLD))
        shard.replay(record, None, number)
    shard.loaded(Effects(), NOW_MS)
    return shard


def replay_all(shard: GroupShard, records: list[Record]) -> None:
    for offset, record in enumerate(records, 10_000):
        shard.replay(record, None, offset)


def test_expired_offsets_and_groups_are_deleted_in_slices() -> None:
    """Each turn of the loop checks some groups, and in the end all expired ones are deleted."""
    count = EXPIRY_SLICE_GROUPS * 2 + 10
    shard = shard_with(count)
    sizes = []
    delays = []
    for _ in range(3):
        effects = Effects()
        shard.due(EXPIRY_TIMER, effects, NOW_MS)
        replay_all(shard, effects.records)
        sizes.append(len(effects.records))
        delays.append(effects.timers[EXPIRY_TIMER])
    assert sizes == [2 * EXPIRY_SLICE_GROUPS, 2 * EXPIRY_SLICE_GROUPS, 20]
    assert delays == [0, 0, shard.offset_rules.retention_check_interval_ms]
    assert not shard.groups
    assert not shard.offsets.by_group


def test_a_pending_member_keeps_an_empty_group() -> None:
    """A pending member keeps the group, not its offsets."""
    shard = shard_with(1)
    shard.groups["g0"].pending_join.add("m")
    effects = Effects()
    shard.due(EXPIRY_TIMER, effects, NOW_MS)
    replay_all(shard, effects.records)
    assert list(shard.groups) == ["g0"]
    assert not shard.offsets.by_group


def test_deleted_topics_take_their_offsets_with_them() -> None:
    """One tombstone for each offset of the topic, and no other."""
    shard = shard_with(3)
    shard.replay(offset_record("g1", "other", 0, Committed(5, -1, "", OLD)), None, 9)
    effects = Effects()
    shard.topics_deleted({"t"}, effects, NOW_MS)
    replay_all(shard, effects.records)
    assert len(effects.records) == 3
    assert list(shard.offsets.by_group) == ["g1"]
    assert list(shard.offsets.of("g1")) == [("other", 0)]


def test_offsets_of_deleted_topics_are_deleted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some groups in each turn; what is committed meanwhile is of a new topic, and stays."""
    monkeypatch.setattr(offset_upkeep, "DELETION_SLICE_OFFSETS", 10)
    shard = shard_with(23)
    new = offset_record("g0", "t", 0, Committed(6, -1, "", OLD))
    effects = Effects()
    shard.topics_deleted({"t"}, effects, NOW_MS)
    shard.replay(new, None, 100)
    sizes = [len(effects.records)]
    while DELETION_TIMER in effects.timers:
        replay_all(shard, effects.records)
        effects = Effects()
        shard.due(DELETION_TIMER, effects, NOW_MS)
        sizes.append(len(effects.records))
    replay_all(shard, effects.records)
    assert max(sizes) <= 10
    assert sum(sizes) == 22
    assert {group: dict(shard.offsets.of(group)) for group in shard.offsets.by_group} == {
        "g0": {("t", 0): Committed(6, -1, "", OLD)}
    }
