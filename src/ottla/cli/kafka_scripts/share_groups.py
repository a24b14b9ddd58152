"""kafka-share-groups.sh: list, describe and delete share groups, reset and delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli import offset_resets as resets
from ottla.cli.connecting import text_of
from ottla.cli.failure import Failure
from ottla.cli.group_views import assignment_text, described_share, share_groups, state_of
from ottla.client.structs import TopicPartition

from .consumer_groups import (
    java_error,
    java_name,
    reset_partitions,
    show_plans,
    warn,
)
from .group_tables import shown, table, width
from .options import COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin, GroupDescription

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS = ("to-datetime", "to-earliest", "to-latest")
STATES = ("Empty", "Stable", "Dead")

PARSER = Parser(
    "kafka-share-groups.sh",
    "list, describe and delete share groups, and reset their offsets",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first", required=True),
        COMMAND_CONFIG,
        Option("list", about="list the share groups"),
        Option("describe", about="show offsets and lag, members or state of share groups"),
        Option("delete", about="delete share groups without members"),
        Option("reset-offsets", about="set where a share group without members begins"),
        Option("delete-offsets", about="let a share group forget topics"),
        Option("group", "NAME", "the share group; may be repeated"),
        Option("all-groups", about="all share groups"),
        Option("topic", "TOPIC[:0,1]", "a topic, or some of its partitions; may be repeated"),
        Option("all-topics", about="with --reset-offsets: all topics that the group has"),
        Option("members", about="with --describe: the members"),
        Option("offsets", about="with --describe: the offsets; this is the default"),
        Option("state", "[STATES]", "with --describe: the state; with --list: filter, and show it"),
        Option("verbose", about="with --describe: more columns"),
        Option("timeout", "MS", "how long to wait", default=30000, kind=int),
        Option("dry-run", about="with --reset-offsets: only show what would be done"),
        Option("execute", about="with --reset-offsets: do it"),
        Option("to-datetime", "TIME", "reset to a time, YYYY-MM-DDTHH:mm:ss.sss"),
        Option("to-earliest", about="reset to the beginning"),
        Option("to-latest", about="reset to the end"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaError

    given = PARSER.parse(arguments)
    action = given.one_of(*ACTIONS)
    check(given, action)
    with admin_of(given) as admin:
        try:
            ACT[action](admin, given)
        except KafkaError as error:
            reason = text_of(error)
            if action in ("describe", "delete-offsets"):
                reason = f"{java_name(type(error))}: {reason}"
            print(f"\nError: Executing share group command failed due to {reason}")
        except ValueError as error:
            PARSER.refuse(str(error))
    return 0


def check(given: Given, action: str) -> None:
    given.exclude("group", ["all-groups", "list"])
    for name in ("members", "offsets", "verbose"):
        if given.has(name) and action != "describe":
            PARSER.refuse(f"Option [{name}] goes with [describe]")
    if given.has("state") and action not in ("describe", "list"):
        PARSER.refuse("Option [state] goes with [describe] or [list]")
    if action == "describe":
        if not given.has("group") and not given.has("all-groups"):
            PARSER.refuse("Option [describe] takes one of these options: [group], [all-groups]")
        views = [name for name in ("members", "offsets", "state") if given.has(name)]
        if len(views) > 1:
            PARSER.refuse(
                "Option [describe] takes at most one of these options: "
                "[members], [offsets], [state]"
            )
        if given.value("state"):
            PARSER.refuse("Option [describe] does not take a value for [state]")
    if action in ("delete", "reset-offsets") and not given.has("group"):
        PARSER.refuse(f"Option [{action}] takes the option: [group]")
    if action == "delete" and given.has("topic"):
        PARSER.refuse("Option [delete] does not take the option: [topic]")
    if action == "delete-offsets":
        given.require("group", "topic")
    if action in ("list", "describe"):
        given.exclude("topic", [action])
    if action == "reset-offsets":
        given.exclude("dry-run", ["execute"])
        if not given.has("dry-run") and not given.has("execute"):
            PARSER.refuse("Option [reset-offsets] takes the option: [execute] or [dry-run]")
        if not given.has("topic") and not given.has("all-topics"):
            PARSER.refuse(
                "Option [reset-offsets] takes one of these options: [all-topics], [topic]"
            )
        for scenario in SCENARIOS:
            given.exclude(scenario, [other for other in SCENARIOS if other != scenario])


# list


def list_groups(admin: Admin, given: Given) -> None:
    if not given.has("state"):
        for group in share_groups(admin):
            print(group["group_id"])
        return
    rows = [
        [group["group_id"], group["group_state"]]
        for group in share_groups(admin, states_in(given.value("state")))
    ]
    for line in table([("GROUP", width(rows, 0)), ("STATE", 0)], rows):
        print(line)


def states_in(text: str | None) -> list[str]:
    if not text:
        return []
    known = {name.lower(): name for name in STATES}
    wanted = [part.strip().lower() for part in text.split(",")]
    if any(each not in known for each in wanted):
        raise ValueError(f"Invalid state list '{text}'. Valid states are: {', '.join(STATES)}")
    return [known[each] for each in wanted]


# describe


def describe(admin: Admin, given: Given) -> None:
    if given.has("all-groups"):
        names = [str(each["group_id"]) for each in share_groups(admin)]
    else:
        names = sorted(set(given.values("group")))
    groups = [described_share(admin, name) for name in names]
    verbose = given.has("verbose")
    for group in groups:
        if given.has("members"):
            show_members(group, verbose=verbose)
        elif given.has("state"):
            show_state(admin, group, verbose=verbose)
        else:
            show_offsets(admin, group.group_id, verbose=verbose)


def show_offsets(admin: Admin, group_id: str, *, verbose: bool) -> None:
    rows = []
    for each, offset in sorted(admin.list_share_group_offsets(group_id)[group_id].items()):
        epoch = shown(None if offset is None else offset.leader_epoch)
        start = shown(None if offset is None else offset.start_offset)
        lag = shown(None if offset is None else offset.lag)
        rows.append([group_id, each.topic, str(each.partition), *[epoch] * verbose, start, lag])
    if not rows:
        print(f"\nShare group '{group_id}' has no offset information.")
        return
    columns = [("GROUP", width(rows, 0)), ("TOPIC", width(rows, 1)), ("PARTITION", 10)]
    columns += [("LEADER-EPOCH", 13)] * verbose + [("START-OFFSET", 13), ("LAG", 0)]
    print()
    for line in table(columns, rows):
        print(line)


def show_members(group: GroupDescription, *, verbose: bool) -> None:
    tell_empty(group)
    if not group.members:
        return
    rows = [
        [
            group.group_id,
            each.member_id,
            each.host,
            each.client_id,
            str(len(each.assignment)),
            *[shown(each.epoch)] * verbose,
            assignment_text(each.assignment),
        ]
        for each in sorted(group.members)
    ]
    columns = [("GROUP", width(rows, 0)), ("CONSUMER-ID", width(rows, 1)), ("HOST", width(rows, 2))]
    columns += [("CLIENT-ID", width(rows, 3)), ("#PARTITIONS", 12)]
    columns += [("MEMBER-EPOCH", 13)] * verbose + [("ASSIGNMENT", 0)]
    print()
    for line in table(columns, rows):
        print(line)


def show_state(admin: Admin, group: GroupDescription, *, verbose: bool) -> None:
    tell_empty(group)
    state = state_of(admin, group)
    epochs = [shown(state.epoch), shown(state.assignment_epoch)] * verbose
    rows = [[state.group, state.coordinator, state.state, *epochs, str(state.member_count)]]
    columns = [("GROUP", width(rows, 0)), ("COORDINATOR (ID)", width(rows, 1, 25)), ("STATE", 15)]
    columns += [("GROUP-EPOCH", 12), ("ASSIGNMENT-EPOCH", 17)] * verbose + [("#MEMBERS", 0)]
    print()
    for line in table(columns, rows):
        print(line)


def tell_empty(group: GroupDescription) -> None:
    if group.state == "Empty":
        print(f"\nShare group '{group.group_id}' has no active members.", file=sys.stderr)


# delete


def delete(admin: Admin, given: Given) -> None:
    states = {str(each["group_id"]): each["group_state"] for each in share_groups(admin)}
    failed: dict[str, str] = {}
    for name in given.values("group"):
        if name not in states:
            other = "java.lang.IllegalArgumentException"
            failed[name] = f"{other}: Group '{name}' is not a share group."
        elif states[name] != "Empty":
            not_empty = "org.apache.kafka.common.errors.GroupNotEmptyException"
            failed[name] = f"{not_empty}: Share group '{name}' is not EMPTY."
    outcome = admin.delete_groups([each for each in given.values("group") if each not in failed])
    failed |= {name: java_error(error) for name, error in outcome.items() if error != "OK"}
    deleted = ", ".join(f"'{name}'" for name in outcome if name not in failed)
    if not failed:
        print(f"Deletion of requested share groups ({deleted}) was successful.")
        return
    print("\nError: Deletion of some share groups failed:")
    for name, reason in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {reason}")
    if deleted:
        print(f"\nThese share groups were deleted successfully: {deleted}")


# offsets


def delete_offsets(admin: Admin, given: Given) -> None:
    from ottla.client.errors import BrokerResponseError

    topics = sorted(set(given.values("topic")))
    try:
        outcome = admin.delete_share_group_offsets(given.value("group"), topics)
    except BrokerResponseError as error:
        print(f"\nError: {text_of(error)}")
        outcome = dict.fromkeys(topics, error)
    rows = [
        [topic, "Successful" if error is None else f"Error: {text_of(error)}"]
        for topic, error in sorted(outcome.items())
    ]
    print()
    for line in table([("TOPIC", width(rows, 0)), ("STATUS", 0)], rows):
        print(line)


def reset_offsets(admin: Admin, given: Given) -> None:
    from ottla.client.errors import GroupIdNotFoundError

    group_id = given.value("group")
    try:
        state = described_share(admin, group_id).state
    except GroupIdNotFoundError:
        state = "Dead"
    if state not in ("Empty", "Dead"):
        raise Failure(f"Share group '{group_id}' is not empty.", "stop its members, then try again")
    plan = planned(admin, given, group_id)
    if given.has("execute"):
        for each, error in admin.alter_share_group_offsets(group_id, plan).items():
            if error is not None:
                raise error(f"{each.topic}-{each.partition}: {error.description}")
    show_plans({group_id: plan})


def planned(admin: Admin, given: Given, group_id: str) -> resets.Offsets:
    partitions: list[TopicPartition]
    if given.has("topic"):
        partitions = reset_partitions(admin, given, group_id)
    else:
        partitions = sorted(admin.list_share_group_offsets(group_id)[group_id])
    if given.has("to-earliest"):
        return resets.earliest(admin, partitions)
    if given.has("to-latest"):
        return resets.latest(admin, partitions)
    if given.has("to-datetime"):
        time_ms = resets.milliseconds_of(given.value("to-datetime"))
        return resets.at_time(admin, partitions, time_ms, warn)
    raise ValueError(
        f"Option '[reset-offsets]' requires one of the following scenarios: {list(SCENARIOS)}"
    )


ACT = {
    "list": list_groups,
    "describe": describe,
    "delete": delete,
    "reset-offsets": reset_offsets,
    "delete-offsets": delete_offsets,
}
main = entry(run)
