"""Where share groups stand: which state is moved or deleted, decided by the group coordinator.

A decision of a request has two halves: the first says what to ask of the share coordinators, the
second, with their answer, changes what the group knows of its state (KIP-932).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.coordinator.effects import Effects
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_group import NamedPartitions, ShareGroup, StatePartitions
from ottla.coordinator.share_group_records import epoch_record, group_tombstones, state_record
from ottla.coordinator.share_groups import Partitions, ShareGroups, not_a_share_group, without
from ottla.wire.errors import ErrorCode


def state_to_delete(shares: ShareGroups, group_id: str) -> Partitions:
    """What must go before a group without members does; raises `Refused`."""
    group = empty_group(shares, group_id)
    found: dict[bytes, set[int]] = {}
    for topics in (group.state.initialized, group.state.initializing):
        for topic_id, topic in topics.items():
            found.setdefault(topic_id, set()).update(topic.partitions)
    return found


def delete_group(shares: ShareGroups, group_id: str, effects: Effects) -> ErrorCode:
    """The state is gone: so is the group, unless a member has joined meanwhile."""
    group = shares.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.members:
        forget(group, state_of(group), effects)
        return ErrorCode.NON_EMPTY_GROUP
    effects.records += group_tombstones(group_id, ())
    return ErrorCode.NONE


def begin_offsets(
    shares: ShareGroups, group_id: str, partitions: Partitions, effects: Effects, now_ms: int
) -> int:
    """A group without members, which may be new, begins elsewhere: the state's next epoch.

    The epoch rises, so that a leader that still has the old state is fenced.
    """
    known = shares.groups.get(group_id)
    if known is None and group_id not in shares.classic_groups:
        group = ShareGroup(group_id)
    elif isinstance(known, ShareGroup):
        group = known
    else:
        raise not_a_share_group(group_id)
    check_empty(group)
    epoch = group.epoch + 1
    effects.records.append(epoch_record(group_id, epoch, group.metadata_hash))
    initializing = dict(group.state.initializing)
    for topic_id, found in partitions.items():
        name = shares.topics.name_of(topic_id)
        if name is not None:
            before = initializing.get(topic_id)
            kept = before.partitions if before is not None else frozenset()
            initializing[topic_id] = NamedPartitions(name, kept | set(found))
            group.initializing_since_ms[topic_id] = now_ms
    changed = StatePartitions(initializing, group.state.initialized, group.state.deleting)
    effects.records.append(state_record(group_id, changed))
    return epoch


def topics_with_state(shares: ShareGroups, group_id: str) -> Mapping[bytes, NamedPartitions]:
    """The topics of a group without members that may be forgotten; raises `Refused`."""
    return empty_group(shares, group_id).state.initialized


def begin_deletion(
    shares: ShareGroups, group_id: str, topic_ids: Collection[bytes], effects: Effects
) -> None:
    """The state of these topics is about to go: a crash does not make it look like there is any."""
    group = shares.get(group_id)
    if group is None:
        return
    state = group.state
    names = {key: topic.name for key, topic in state.initialized.items() if key in topic_ids}
    changed = StatePartitions(
        state.initializing, without(state.initialized, topic_ids), {**state.deleting, **names}
    )
    effects.records.append(state_record(group_id, changed))


def end_deletion(
    shares: ShareGroups, group_id: str, topic_ids: Collection[bytes], effects: Effects
) -> None:
    group = shares.get(group_id)
    if group is not None:
        forget(group, topic_ids, effects)


def forget(group: ShareGroup, topic_ids: Collection[bytes], effects: Effects) -> None:
    state = group.state
    kept = StatePartitions(
        without(state.initializing, topic_ids),
        without(state.initialized, topic_ids),
        {key: name for key, name in state.deleting.items() if key not in topic_ids},
    )
    if kept != state:
        effects.records.append(state_record(group.group_id, kept))


def state_of(group: ShareGroup) -> set[bytes]:
    return {*group.state.initialized, *group.state.initializing}


def empty_group(shares: ShareGroups, group_id: str) -> ShareGroup:
    group = shares.known_group(group_id)
    check_empty(group)
    return group


def check_empty(group: ShareGroup) -> None:
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.message)
