"""The tables of kafka-consumer-groups.sh --describe, column by column."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.cli.group_views import OffsetRow, assignment_text, described, offset_rows, state_of

if TYPE_CHECKING:
    from ottla.client.admin import Admin, GroupDescription, GroupMember

GROUP_STATES = (
    "Assigning", "Reconciling", "Empty", "Stable", "CompletingRebalance", "PreparingRebalance",
    "Dead",
)  # fmt: skip
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def table(columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A header and rows, each column filled to its width (0: not at all)."""
    for row in ([name for name, _ in columns], *rows):
        yield " ".join(text.ljust(width) for text, (_, width) in zip(row, columns, strict=True))


def width(rows: Sequence[Sequence[str]], index: int, least: int = 15) -> int:
    return max([least, *(len(row[index]) for row in rows)])


def tell_state(group: str, state: str) -> None:
    if state == "Empty":
        print(f"\nConsumer group '{group}' has no active members.", file=sys.stderr)
    elif state in REBALANCING:
        print(f"\nWarning: Consumer group '{group}' is rebalancing.", file=sys.stderr)


def shown(value: object) -> str:
    return "-" if value is None else str(value)


def show_offsets(admin: Admin, groups: Sequence[str], *, verbose: bool) -> None:
    for group_id in groups:
        group = described(admin, group_id)
        tell_state(group_id, group.state)
        rows = [offset_texts(row, verbose) for row in offset_rows(admin, group)]
        if not rows:
            continue
        columns = [("GROUP", width(rows, 0)), ("TOPIC", width(rows, 1)), ("PARTITION", 10)]
        columns += [("LEADER-EPOCH", 15)] * verbose
        columns += [("CURRENT-OFFSET", 15), ("LOG-END-OFFSET", 15), ("LAG", 15)]
        columns += [("CONSUMER-ID", width(rows, -3)), ("HOST", width(rows, -2)), ("CLIENT-ID", 0)]
        print()
        for line in table(columns, rows):
            print(line)


def offset_texts(row: OffsetRow, verbose: bool) -> list[str]:
    return [
        row.group,
        shown(row.topic),
        shown(row.partition),
        *[shown(row.leader_epoch)] * verbose,
        shown(row.offset),
        shown(row.end_offset),
        shown(row.lag),
        row.consumer_id,
        row.host,
        row.client_id,
    ]


def show_members(admin: Admin, groups: Sequence[str], *, verbose: bool) -> None:
    for group_id in groups:
        group = described(admin, group_id)
        tell_state(group_id, group.state)
        named = any(each.group_instance_id for each in group.members)
        # Who is of which protocol is shown where there are both kinds (KIP-848's upgrades).
        mixed = {True, False} <= {each.uses_new_protocol for each in group.members}
        rows = [member_texts(group, each, named, mixed, verbose) for each in group.members]
        columns = [("GROUP", width(rows, 0)), ("CONSUMER-ID", width(rows, 1))]
        columns += [("GROUP-INSTANCE-ID", width(rows, 2, 17) if rows else 17)] * named
        at = 2 + named
        columns += [("HOST", width(rows, at)), ("CLIENT-ID", width(rows, at + 1))]
        columns += [("#PARTITIONS", 15)]
        if verbose:
            at += 3
            columns += [("CURRENT-EPOCH", 15), ("CURRENT-ASSIGNMENT", width(rows, at + 1, 20))]
            columns += [("TARGET-EPOCH", 15), ("TARGET-ASSIGNMENT", width(rows, at + 3, 20))]
            columns += [("UPGRADED", 0)] * mixed
        print()
        for line in table(columns, rows):
            print(line if verbose else f"{line} ")


def member_texts(
    group: GroupDescription, member: GroupMember, named: bool, mixed: bool, verbose: bool
) -> list[str]:
    instance_id = member.group_instance_id or ""
    texts = [group.group_id, member.member_id, *[instance_id] * named]
    texts += [member.host, member.client_id, str(len(member.assignment))]
    if verbose:  # epochs and targets are those of groups of the new protocol (KIP-848)
        texts += [shown(member.epoch), assignment_text(member.assignment) or "-"]
        texts += [shown(group.assignment_epoch)]
        texts += [assignment_text(member.target_assignment or ()) or "-"]
        upgraded = member.uses_new_protocol
        texts += ["-" if upgraded is None else str(upgraded).lower()] * mixed
    return texts


def show_states(admin: Admin, groups: Sequence[str], *, verbose: bool) -> None:
    for group_id in groups:
        group = described(admin, group_id)
        tell_state(group_id, group.state)
        state = state_of(admin, group)
        rows = [
            [
                state.group,
                state.coordinator,
                state.strategy,
                state.state,
                *[shown(state.epoch), shown(state.assignment_epoch)] * verbose,
                str(state.member_count),
            ]
        ]
        columns = [("GROUP", width(rows, 0)), ("COORDINATOR (ID)", width(rows, 1, 25))]
        columns += [("ASSIGNMENT-STRATEGY", 20), ("STATE", 20)]
        columns += [("GROUP-EPOCH", 15), ("TARGET-ASSIGNMENT-EPOCH", 25)] * verbose
        columns += [("#MEMBERS", 0)]
        print()
        for line in table(columns, rows):
            print(line)
