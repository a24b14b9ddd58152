"""Groups and their offsets: list, describe, delete; read, set, reset and forget offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.wire.malformed import MalformedMessage

from ..argument_checks import check_names
from ..errors import BrokerResponseError, error_class, error_for, raise_for
from ..structs import OffsetAndMetadata, TopicPartition
from .base import AdminBase, by_topic, raise_first
from .records import Records
from .types import MemberToRemove, OffsetReset, OffsetSpec, OffsetTimestamp, to_dict

if TYPE_CHECKING:
    from ottla.wire.api.describe_groups import DescribedGroup
    from ottla.wire.api.offset_commit import OffsetCommitResponse
    from ottla.wire.api.offset_delete import OffsetDeleteResponse
    from ottla.wire.api.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

BY_NAME = 9  # offsets are asked for by topic id from version 10 on; names are what people have

ErrorClass = type[BrokerResponseError] | None


class Groups(Records, AdminBase):
    """The part of the admin that knows groups."""

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[str] | None = None,
        types_filter: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """All groups that these brokers (or all) coordinate, each once."""
        from ottla.wire.api.list_groups import ListGroupsRequest

        request = ListGroupsRequest(
            states_filter=[str(getattr(each, "value", each)) for each in states_filter or ()],
            types_filter=[str(getattr(each, "value", each)) for each in types_filter or ()],
        )
        found: dict[str, dict[str, Any]] = {}
        for broker_id in self._broker_ids() if broker_ids is None else broker_ids:
            answer = self._ask(request, broker_id, check=lambda got: raise_for(got.error_code))
            for group in answer.groups:
                found[group.group_id] = to_dict(group)
        return list(found.values())

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """State, protocol and members of groups, with what each member wants and has.

        A consumer's `member_metadata` and `member_assignment` come as dictionaries, anything else
        as bytes. `error` is the text of what went wrong, or None.
        """
        from ottla.wire.api.describe_groups import DescribeGroupsRequest

        check_names(group_ids, "describe_groups")
        described = {}
        for group_id in group_ids:
            answer = self._ask_coordinator(
                group_id,
                DescribeGroupsRequest(
                    groups=[group_id], include_authorized_operations=include_authorized_operations
                ),
                lambda got: raise_first(
                    each for each in got.groups if error_for(each.error_code).retriable
                ),
                node_id=group_coordinator_id,
            )
            for group in answer.groups:
                described[group.group_id] = described_group(group)
        return described

    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> dict[str, str]:
        """Delete groups without members; gives "OK" or the name of the error for each."""
        from ottla.wire.api.delete_groups import DeleteGroupsRequest

        check_names(group_ids, "delete_groups")
        outcome = {}
        for group_id in group_ids:
            answer = self._ask_coordinator(
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                node_id=group_coordinator_id,
            )
            for result in answer.results:
                code = result.error_code
                outcome[result.group_id] = error_class(code).__name__ if code else "OK"
        return outcome

    # Offsets

    def list_group_offsets(
        self, group_specs: Mapping[str, Iterable[TopicPartition] | None] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups: of these partitions, or of all (None)."""
        from ottla.wire.api.offset_fetch import (
            OffsetFetchRequest,
            OffsetFetchRequestGroup,
            OffsetFetchRequestTopic,
            OffsetFetchRequestTopics,
        )

        specs = {group_specs: None} if isinstance(group_specs, str) else group_specs
        found = {}
        for group_id, partitions in specs.items():
            named = None if partitions is None else by_topic(TopicPartition(*p) for p in partitions)
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=None
                if named is None
                else [
                    OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                    for name, indexes in named.items()
                ],
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=None
                        if named is None
                        else [
                            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                            for name, indexes in named.items()
                        ],
                    )
                ],
            )
            answer = self._ask_coordinator(
                group_id,
                request,
                lambda got: raise_for((got.groups[0] if got.groups else got).error_code),
                version_max=BY_NAME,
            )
            found[group_id] = committed_in(answer.groups[0] if answer.groups else answer)
        return found

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorClass]:
        """Set the offsets of a group without members; returns error classes (None: done)."""
        from ottla.wire.api.offset_commit import (
            OffsetCommitRequest,
            OffsetCommitRequestPartition,
            OffsetCommitRequestTopic,
        )

        topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for each, given in offsets.items():
            offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
            topics[each[0]].append(
                OffsetCommitRequestPartition(
                    partition_index=each[1],
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1
                    if offset.leader_epoch is None
                    else offset.leader_epoch,
                    committed_metadata=offset.metadata or "",
                )
            )
        answer = self._ask_coordinator(
            group_id,
            OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(name=name, partitions=theirs)
                    for name, theirs in topics.items()
                ],
            ),
            node_id=group_coordinator_id,
            version_max=BY_NAME,
        )
        return outcomes_in(answer)

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set a group's offsets by spec, time or number, kept inside what the log has.

        Gives `{"error": class or None, "offset": …}` for each partition.
        """
        wanted = {TopicPartition(*each): spec for each, spec in offset_specs.items()}
        first = self.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        last = self.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        named = {
            each: spec
            for each, spec in wanted.items()
            if isinstance(spec, OffsetSpec | OffsetTimestamp)
        }
        found = self.list_partition_offsets(named) if named else {}
        target = {}
        for each, spec in wanted.items():
            offset = found[each].offset if each in found else int(spec)
            if offset < 0 or offset > last[each].offset:
                offset = last[each].offset
            target[each] = OffsetAndMetadata(max(offset, first[each].offset))
        outcome = self.alter_group_offsets(group_id, target, group_coordinator_id)
        return {
            each: {"error": outcome.get(each), "offset": target[each].offset} for each in target
        }

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorClass]:
        """Forget a group's offsets of these partitions; gives the error class (None: done)."""
        from ottla.wire.api.offset_delete import (
            OffsetDeleteRequest,
            OffsetDeleteRequestPartition,
            OffsetDeleteRequestTopic,
        )

        named = by_topic(TopicPartition(*each) for each in partitions)
        answer = self._ask_coordinator(
            group_id,
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                        ],
                    )
                    for name, indexes in named.items()
                ],
            ),
            lambda got: raise_for(got.error_code),
            node_id=group_coordinator_id,
        )
        return outcomes_in(answer)

    def remove_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove],
        group_coordinator_id: int | None = None,
    ) -> dict[MemberToRemove, ErrorClass]:
        """Let members leave; gives the error class of each (None: gone)."""
        from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity

        leaving = list(members)
        answer = self._ask_coordinator(
            group_id,
            LeaveGroupRequest(
                group_id=group_id,
                members=[
                    MemberIdentity(
                        member_id=each.member_id or "",
                        group_instance_id=each.group_instance_id,
                        reason=each.reason,
                    )
                    for each in leaving
                ],
            ),
            lambda got: raise_for(got.error_code),
            node_id=group_coordinator_id,
        )
        return {
            each: error_class(result.error_code) if result.error_code else None
            for each, result in zip(leaving, answer.members, strict=False)
        }


def described_group(group: DescribedGroup) -> dict[str, Any]:
    from ottla.wire.consumer_protocol import read_assignment, read_subscription

    plain: dict[str, Any] = to_dict(group)
    code, text = plain.pop("error_code"), plain.pop("error_message")
    plain["error"] = str(error_for(code, text)) if code else None
    if group.protocol_type in ("consumer", ""):
        for member in plain["members"]:
            for name, read in (
                ("member_metadata", read_subscription),
                ("member_assignment", read_assignment),
            ):
                if member[name]:
                    try:
                        member[name] = to_dict(read(member[name]))
                    except MalformedMessage:
                        pass  # a client's own bytes
    return plain


def committed_in(
    group: OffsetFetchResponse | OffsetFetchResponseGroup,
) -> dict[TopicPartition, OffsetAndMetadata]:
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            raise_for(each.error_code, f"{topic.name}-{each.partition_index}")
            if each.committed_offset >= 0:
                found[TopicPartition(topic.name, each.partition_index)] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return found


def outcomes_in(
    answer: OffsetCommitResponse | OffsetDeleteResponse,
) -> dict[TopicPartition, ErrorClass]:
    return {
        TopicPartition(topic.name, each.partition_index): error_class(each.error_code)
        if each.error_code
        else None
        for topic in answer.topics
        for each in topic.partitions
    }
