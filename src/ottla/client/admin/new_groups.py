"""Groups of the protocols that brokers drive: consumer groups (KIP-848), share groups (KIP-932).

`describe_consumer_groups` knows both protocols of consumers, so that a caller need not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..argument_checks import check_names
from ..errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    IncompatibleBrokerVersion,
    error_class,
    error_for,
    raise_for,
)
from ..structs import TopicPartition
from .base import AdminBase, by_topic, raise_first
from .groups import ErrorClass, described_group
from .types import GroupDescription, GroupMember, GroupType, ShareOffset

if TYPE_CHECKING:
    from ottla.wire.api import consumer_group_describe, share_group_describe

UNKNOWN = -1
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


class NewGroups(AdminBase):
    """The part of the admin that knows groups of the new protocols."""

    def describe_consumer_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Consumer groups of either protocol; raises GroupIdNotFoundError where there is none."""
        check_names(group_ids, "describe_consumer_groups")
        return {group_id: self._consumer_group(group_id) for group_id in group_ids}

    def _consumer_group(self, group_id: str) -> GroupDescription:
        from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest

        try:
            answer = self._ask_coordinator(
                group_id,
                ConsumerGroupDescribeRequest(group_ids=[group_id]),
                lambda got: raise_first(got.groups),
            )
            return consumer_group(answer.groups[0])
        except (GroupIdNotFoundError, IncompatibleBrokerVersion):
            return self._classic_group(group_id)  # or there is none

    def _classic_group(self, group_id: str) -> GroupDescription:
        from ottla.wire.api.describe_groups import DescribeGroupsRequest

        answer = self._ask_coordinator(
            group_id,
            DescribeGroupsRequest(groups=[group_id]),
            lambda got: raise_first(got.groups),
        )
        plain = described_group(answer.groups[0])
        if plain["group_state"] == "Dead":  # as brokers of old say it
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return GroupDescription(
            group_id,
            GroupType.CLASSIC,
            plain["group_state"],
            plain["protocol_data"],
            [classic_member(each) for each in plain["members"]],
        )

    # Share groups

    def describe_share_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Share groups with their members; raises GroupIdNotFoundError where there is none."""
        from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest

        check_names(group_ids, "describe_share_groups")
        described = {}
        for group_id in group_ids:
            answer = self._ask_coordinator(
                group_id,
                ShareGroupDescribeRequest(group_ids=[group_id]),
                lambda got: raise_first(got.groups),
            )
            described[group_id] = share_group(answer.groups[0])
        return described

    def list_share_group_offsets(
        self, group_specs: Mapping[str, Iterable[TopicPartition] | None] | str
    ) -> dict[str, dict[TopicPartition, ShareOffset | None]]:
        """Where share groups begin in these partitions, or in all that they have (None).

        None stands for a partition that a group has and has not begun to read.
        """
        from ottla.wire.api.describe_share_group_offsets import (
            DescribeShareGroupOffsetsRequest,
            DescribeShareGroupOffsetsRequestGroup,
            DescribeShareGroupOffsetsRequestTopic,
        )

        specs = {group_specs: None} if isinstance(group_specs, str) else group_specs
        found: dict[str, dict[TopicPartition, ShareOffset | None]] = {}
        for group_id, partitions in specs.items():
            topics = None
            if partitions is not None:
                topics = [
                    DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
                    for name, indexes in by_topic(TopicPartition(*p) for p in partitions).items()
                ]
            answer = self._ask_coordinator(
                group_id,
                DescribeShareGroupOffsetsRequest(
                    groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)]
                ),
                lambda got: raise_first(got.groups),
            )
            theirs = found[group_id] = {}
            for topic in answer.groups[0].topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.topic_name, each.partition_index)
                    raise_for(each.error_code, f"{place.topic}-{place.partition}")
                    theirs[place] = share_offset(each)
        return found

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorClass]:
        """Move where a share group without members begins; gives error classes (None: done)."""
        from ottla.wire.api.alter_share_group_offsets import (
            AlterShareGroupOffsetsRequest,
            AlterShareGroupOffsetsRequestPartition,
            AlterShareGroupOffsetsRequestTopic,
        )

        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
        for each, offset in offsets.items():
            topics[each[0]].append(
                AlterShareGroupOffsetsRequestPartition(partition_index=each[1], start_offset=offset)
            )
        answer = self._ask_coordinator(
            group_id,
            AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=theirs)
                    for name, theirs in topics.items()
                ],
            ),
            lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            TopicPartition(topic.topic_name, each.partition_index): error_class(each.error_code)
            if each.error_code
            else None
            for topic in answer.responses
            for each in topic.partitions
        }

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, BrokerResponseError | None]:
        """Let a share group without members forget topics; gives what went wrong, or None."""
        from ottla.wire.api.delete_share_group_offsets import (
            DeleteShareGroupOffsetsRequest,
            DeleteShareGroupOffsetsRequestTopic,
        )

        check_names(topics, "delete_share_group_offsets")
        answer = self._ask_coordinator(
            group_id,
            DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics],
            ),
            lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            each.topic_name: error_for(each.error_code, each.error_message)
            if each.error_code
            else None
            for each in answer.responses
        }


def consumer_group(group: consumer_group_describe.DescribedGroup) -> GroupDescription:
    kinds = {CLASSIC_MEMBER: False, CONSUMER_MEMBER: True}
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        group.group_state,
        group.assignor_name,
        [
            GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                partitions_in(each.assignment),
                partitions_in(each.target_assignment),
                each.member_epoch,
                kinds.get(each.member_type),
            )
            for each in group.members
        ],
        group.group_epoch,
        group.assignment_epoch,
    )


def share_group(group: share_group_describe.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        GroupType.SHARE,
        group.group_state,
        group.assignor_name,
        [
            GroupMember(
                each.member_id,
                None,
                each.client_id,
                each.client_host,
                partitions_in(each.assignment),
                epoch=each.member_epoch,
            )
            for each in group.members
        ],
        group.group_epoch,
        group.assignment_epoch,
    )


def classic_member(member: dict[str, Any]) -> GroupMember:
    assigned = member["member_assignment"]
    return GroupMember(
        member["member_id"],
        member["group_instance_id"],
        member["client_id"],
        member["client_host"],
        sorted(
            TopicPartition(each["topic"], index)
            for each in (assigned["assigned_partitions"] if isinstance(assigned, dict) else ())
            for index in each["partitions"]
        ),
    )


def partitions_in(
    assignment: consumer_group_describe.Assignment | share_group_describe.Assignment,
) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def share_offset(partition: Any) -> ShareOffset | None:
    if partition.start_offset == UNKNOWN:
        return None
    return ShareOffset(
        partition.start_offset,
        None if partition.leader_epoch == UNKNOWN else partition.leader_epoch,
        None if partition.lag == UNKNOWN else partition.lag,
    )
