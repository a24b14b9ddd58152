"""How a member gets from what it has to its target, one heartbeat after the other (KIP-848). Pure.

A member first gives up what is not in its target, and stays in its epoch until it has said that it
no longer owns that; then it gets what is free, in the epoch of the target; what others still have
follows when they have given it up. So no partition ever has two members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.coordinator.consumer_group import (
    FREE,
    NO_EPOCHS,
    NO_PARTITIONS,
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    Assignment,
    ConsumerMember,
    EpochAssignment,
)
from ottla.coordinator.new_group import Refused
from ottla.wire.errors import ErrorCode

# What a member says it owns; None when it says nothing.
Owned = Mapping[bytes, Collection[int]] | None


class Reconciliation:
    """One step of one member."""

    def __init__(
        self,
        *,
        target_epoch: int,
        target: Assignment,
        subscribed_ids: Collection[bytes],
        subscription_changed: bool,
        owned: Owned,
        partition_epoch: Callable[[bytes, int], int],
    ) -> None:
        self.target_epoch = target_epoch
        self.target = target
        self.subscribed_ids = subscribed_ids
        self.subscription_changed = subscription_changed
        self.owned = owned
        self.partition_epoch = partition_epoch

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after this heartbeat; the same one if nothing changes."""
        if member.state is UNKNOWN:
            if self.owned is None or self.owned:
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return self.advance(member._replace(epoch=self.target_epoch))
        waits = member.state is STABLE and member.epoch == self.target_epoch
        waits |= member.state is UNREVOKED and self.still_owns(member.pending_revocation)
        if not waits:
            return self.advance(member)
        return self.drop_unsubscribed(member) if self.subscription_changed else member

    def still_owns(self, partitions: EpochAssignment) -> bool:
        """Whether the member may still read any of these."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, ())
            for topic_id, owned in self.owned.items()
            for partition in owned
        )

    def drop_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """No new target, but the member no longer subscribes to some of its topics."""
        left = {key: each for key, each in member.assigned.items() if key in self.subscribed_ids}
        if len(left) == len(member.assigned):
            return member
        pending = dict(member.pending_revocation)
        for topic_id, epochs in member.assigned.items():
            if topic_id not in left:
                pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
        changed = member.with_epoch(member.epoch)._replace(assigned=left)
        if self.still_owns(pending):
            return changed._replace(state=UNREVOKED, pending_revocation=pending)
        return changed

    def advance(self, member: ConsumerMember) -> ConsumerMember:
        """Towards the target, as far as this member and the others allow."""
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        granted: dict[bytes, list[int]] = {}
        unreleased = False
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            target = NO_PARTITIONS
            if topic_id in self.subscribed_ids:
                target = self.target.get(topic_id, NO_PARTITIONS)
            has = member.assigned.get(topic_id, {})
            keep = {each: epoch for each, epoch in has.items() if each in target}
            if keep:
                kept[topic_id] = keep
            if len(keep) < len(has):
                revoked[topic_id] = {k: epoch for k, epoch in has.items() if k not in keep}
            # What this member itself had to give up is free once it is no longer pending.
            own = member.pending_revocation.get(topic_id, {})
            missing = [each for each in target if each not in keep]
            grant = [
                each
                for each in missing
                if each in own or self.partition_epoch(topic_id, each) == FREE
            ]
            unreleased |= len(grant) < len(missing)
            if grant:
                granted[topic_id] = grant
        if revoked and self.still_owns(revoked):
            return member._replace(
                previous_epoch=member.epoch,
                state=UNREVOKED,
                assigned=kept,
                pending_revocation=revoked,
            )
        for topic_id, partitions in granted.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target_epoch))
        return member._replace(
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            state=UNRELEASED if unreleased else STABLE,
            assigned=kept,
            pending_revocation=NO_EPOCHS,
        )
