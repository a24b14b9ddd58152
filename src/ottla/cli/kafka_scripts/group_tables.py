"""The tables of kafka-consumer-groups.sh --describe, column by column."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.cli.group_views import (
    MemberRow,
    OffsetRow,
    described,
    member_rows,
    offset_rows,
    state_of,
)

if TYPE_CHECKING:
    from ottla.client.admin import Admin

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
        tell_state(group_id, group["group_state"])
        rows = [offset_texts(row, verbose) for row in offset_rows(admin, group_id, group)]
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
        tell_state(group_id, group["group_state"])
        members = member_rows(group_id, group)
        named = any(row.instance_id for row in members)
        rows = [member_texts(row, named, verbose) for row in members]
        columns = [("GROUP", width(rows, 0)), ("CONSUMER-ID", width(rows, 1))]
        columns += [("GROUP-INSTANCE-ID", width(rows, 2, 17) if rows else 17)] * named
        at = 2 + named
        columns += [("HOST", width(rows, at)), ("CLIENT-ID", width(rows, at + 1))]
        columns += [("#PARTITIONS", 15)]
        if verbose:
            columns += [("CURRENT-EPOCH", 15), ("CURRENT-ASSIGNMENT", width(rows, -3, 20))]
            columns += [("TARGET-EPOCH", 15), ("TARGET-ASSIGNMENT", 20)]
        print()
        for line in table(columns, rows):
            print(line if verbose else f"{line} ")


def member_texts(row: MemberRow, named: bool, verbose: bool) -> list[str]:
    texts = [row.group, row.consumer_id, *[row.instance_id] * named, row.host, row.client_id]
    texts.append(str(len(row.assignment)))
    if verbose:  # epochs and targets are those of groups of the new protocol (KIP-848)
        texts += ["-", assignment_text(row), "-", "-"]
    return texts


def assignment_text(row: MemberRow) -> str:
    topics: dict[str, list[str]] = {}
    for each in row.assignment:
        topics.setdefault(each.topic, []).append(str(each.partition))
    return ";".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items()) or "-"


def show_states(admin: Admin, groups: Sequence[str], *, verbose: bool) -> None:
    for group_id in groups:
        group = described(admin, group_id)
        tell_state(group_id, group["group_state"])
        state = state_of(admin, group_id, group)
        rows = [
            [
                state.group,
                state.coordinator,
                state.strategy,
                state.state,
                *["-", "-"] * verbose,
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
