"""kafka-consumer-groups.sh: list, describe and delete groups, reset and delete their offsets."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import offset_resets as resets
from ottla.cli.connecting import text_of
from ottla.cli.failure import Failure
from ottla.cli.group_views import consumer_groups, state_or_dead
from ottla.client.structs import TopicPartition

from .group_tables import GROUP_STATES, show_members, show_offsets, show_states, table
from .options import COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file",
    "to-current",
)  # fmt: skip
GROUP_TYPES = ("Consumer", "Classic")

PARSER = Parser(
    "kafka-consumer-groups.sh",
    "list, describe and delete consumer groups, and reset their offsets",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first", required=True),
        COMMAND_CONFIG,
        Option("list", about="list the groups"),
        Option("describe", about="show offsets and lag, members or state of groups"),
        Option("delete", about="delete groups without members"),
        Option("reset-offsets", about="set the offsets of groups without members"),
        Option("delete-offsets", about="forget the offsets of topics"),
        Option("validate-regex", "REGEX", "say whether a regular expression is one of Kafka's"),
        Option("group", "NAME", "the group; may be repeated"),
        Option("all-groups", about="all groups"),
        Option("topic", "TOPIC[:0,1]", "a topic, or some of its partitions; may be repeated"),
        Option("all-topics", about="all topics that the group has offsets of"),
        Option("members", about="with --describe: the members"),
        Option("offsets", about="with --describe: the offsets; this is the default"),
        Option("state", "[STATES]", "with --describe: the state; with --list: filter, and show it"),
        Option("type", "[TYPES]", "with --list: filter by type, and show it"),
        Option("verbose", about="with --describe: more columns"),
        Option("timeout", "MS", "how long to wait", default=5000, kind=int),
        Option("dry-run", about="with --reset-offsets: only show what would be done"),
        Option("execute", about="with --reset-offsets: do it"),
        Option("export", about="with --reset-offsets: print the plan as CSV"),
        Option("to-offset", "OFFSET", "reset to an offset", kind=int),
        Option("to-datetime", "TIME", "reset to a time, YYYY-MM-DDTHH:mm:ss.sss"),
        Option("by-duration", "PnDTnHnMnS", "reset to so long before now"),
        Option("to-earliest", about="reset to the beginning"),
        Option("to-latest", about="reset to the end"),
        Option("to-current", about="reset to the committed offsets"),
        Option("shift-by", "COUNT", "reset by so many records, back if negative", kind=int),
        Option("from-file", "FILE", "reset to the plan in a CSV file"),
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
            if action == "describe":
                reason = f"{java_name(type(error))}: {reason}"
            print(f"\nError: Executing consumer group command failed due to {reason}")
        except ValueError as error:
            PARSER.refuse(str(error))
    return 0


def check(given: Given, action: str) -> None:
    named = given.has("group") or given.has("all-groups")
    if action in ("describe", "delete", "reset-offsets") and not named:
        PARSER.refuse(f"Option [{action}] takes one of these options: [group], [all-groups]")
    given.exclude("group", ["all-groups"])
    if action == "describe":
        views = [name for name in ("members", "offsets", "state") if given.has(name)]
        if len(views) > 1:
            PARSER.refuse(
                "Option [describe] takes at most one of these options: "
                "[members], [offsets], [state]"
            )
        if given.value("state"):
            PARSER.refuse("Option [describe] does not take a value for [state]")
    if action == "delete" and given.has("topic"):
        PARSER.refuse("--delete is for whole groups; for topics there is --delete-offsets")
    if action == "delete-offsets":
        given.require("group", "topic")
    if action == "reset-offsets":
        given.exclude("dry-run", ["execute"])
        for scenario in SCENARIOS:
            given.exclude(scenario, [other for other in SCENARIOS if other != scenario])
        if not given.has("dry-run") and not given.has("execute"):
            print(
                "WARN: nothing will be changed, because --execute is missing. Say --dry-run to "
                "mean this: Kafka 5.0 will want one of the two.",
                file=sys.stderr,
            )


def names_of(admin: Admin, given: Given) -> list[str]:
    if given.has("all-groups"):
        return [str(group["group_id"]) for group in consumer_groups(admin)]
    return list(given.values("group"))


# list


def list_groups(admin: Admin, given: Given) -> None:
    with_type, with_state = given.has("type"), given.has("state")
    states = chosen("state", given.value("state"), GROUP_STATES)
    types = chosen("type", given.value("type"), GROUP_TYPES)
    found = consumer_groups(admin, states, types)
    if not with_type and not with_state:
        for group in found:
            print(group["group_id"])
        return
    width = max([15, *(len(group["group_id"]) for group in found)]) + 10
    columns = [("GROUP", width)]
    columns += [("TYPE", 20)] * with_type + [("STATE", 20)] * with_state
    rows = [
        [group["group_id"]]
        + [group["group_type"].capitalize()] * with_type
        + [group["group_state"]] * with_state
        for group in found
    ]
    for line in table(columns, rows):
        print(line)


def chosen(what: str, text: str | None, valid: Sequence[str]) -> list[str]:
    if not text:
        return []
    known = {name.lower(): name for name in valid}
    wanted = [part.strip().lower() for part in text.split(",")]
    if any(each not in known for each in wanted):
        plural = {"state": "state", "type": "types"}[what]
        raise ValueError(f"Invalid {plural} list '{text}'. Valid {what}s are: {', '.join(valid)}")
    return [known[each] for each in wanted]


# describe


def describe(admin: Admin, given: Given) -> None:
    show = show_offsets
    if given.has("members"):
        show = show_members
    elif given.has("state"):
        show = show_states
    show(admin, sorted(names_of(admin, given)), verbose=given.has("verbose"))


# delete


def delete(admin: Admin, given: Given) -> None:
    outcome = admin.delete_groups(names_of(admin, given))
    failed = {group: name for group, name in outcome.items() if name != "OK"}
    if not failed:
        listed = ", ".join(f"'{group}'" for group in outcome)
        print(f"Deletion of requested consumer groups ({listed}) was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group, name in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {java_error(name)}")
    done = [f"'{group}'" for group in outcome if group not in failed]
    if done:
        print(f"\nThese consumer groups were deleted successfully: {', '.join(done)}")


# offsets


def delete_offsets(admin: Admin, given: Given) -> None:
    from ottla.client.errors import BY_CODE, KafkaError

    group_id, rows = given.value("group"), []
    partitions, unknown = named_partitions(admin, given)
    outcome: dict[TopicPartition, Any] = {}
    problem = ""
    try:
        outcome = admin.delete_group_offsets(group_id, partitions) if partitions else {}
        if any(outcome.values()):
            problem = "Encountered some partition-level error, see the follow-up details."
    except KafkaError as error:
        outcome = dict.fromkeys(partitions, type(error))
        problem = str(getattr(error, "description", "") or text_of(error))
    if problem:
        print(f"\nError: {problem}")
    else:
        print(f"Request succeeded for deleting offsets from group {group_id}.")
    for each in sorted(partitions):
        error_class = outcome.get(each)
        status = f"Error: {java_error(error_class.__name__)}" if error_class else "Successful"
        rows.append([each.topic, str(each.partition), status])
    missing = java_error(BY_CODE[3].__name__)
    rows += [[name, "-", f"Error: {missing}"] for name in unknown]
    width = max([15, *(len(row[0]) for row in rows)])
    print()
    for line in table([("TOPIC", width), ("PARTITION", 10), ("STATUS", 15)], rows):
        print(line)


def named_partitions(admin: Admin, given: Given) -> tuple[list[TopicPartition], list[str]]:
    """The partitions that --topic names, and the topics that are not there."""
    partitions, whole = [], []
    for text in given.values("topic"):
        name, colon, numbers = text.partition(":")
        if colon:
            partitions += [TopicPartition(name, int(number)) for number in numbers.split(",")]
        else:
            whole.append(name)
    unknown = []
    for topic in admin.describe_topics(whole) if whole else ():
        if topic["error_code"]:
            unknown.append(topic["name"])
        partitions += [
            TopicPartition(topic["name"], each["partition_index"]) for each in topic["partitions"]
        ]
    return sorted(partitions), unknown


def reset_offsets(admin: Admin, given: Given) -> None:
    groups = names_of(admin, given)
    plans: dict[str, resets.Offsets] = {}
    for group_id in groups:
        state = state_or_dead(admin, group_id)
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            plans[group_id] = {}
            continue
        plans[group_id] = plan(admin, given, group_id, groups)
        if given.has("execute"):
            for each, error in admin.alter_group_offsets(group_id, plans[group_id]).items():
                if error is not None:
                    raise error(f"{each.topic}-{each.partition}: {error.description}")
    if given.has("export"):
        print(resets.format_plan(plans, with_group=len(groups) > 1))
    else:
        show_plans(plans)


def show_plans(plans: dict[str, resets.Offsets]) -> None:
    rows = [
        [group_id, each.topic, str(each.partition), str(offset)]
        for group_id, offsets in plans.items()
        for each, offset in offsets.items()
    ]
    widths = [max([15, *(len(row[index]) for row in rows)]) for index in (0, 1)]
    columns = [("GROUP", widths[0]), ("TOPIC", widths[1]), ("PARTITION", 10), ("NEW-OFFSET", 0)]
    print()
    for line in table(columns, rows):
        print(line)


def plan(admin: Admin, given: Given, group_id: str, groups: list[str]) -> resets.Offsets:
    scenario = next((name for name in SCENARIOS if given.has(name)), None)
    partitions = [] if scenario == "from-file" else reset_partitions(admin, given, group_id)
    committed = {
        each: found.offset for each, found in admin.list_group_offsets(group_id)[group_id].items()
    }
    if scenario == "to-offset":
        wanted = dict.fromkeys(partitions, given.value("to-offset"))
        return resets.in_range(admin, wanted, quiet)
    if scenario == "to-earliest":
        return resets.earliest(admin, partitions)
    if scenario == "to-latest":
        return resets.latest(admin, partitions)
    if scenario == "to-current":
        return resets.current(admin, partitions, committed)
    if scenario == "shift-by":
        return resets.shifted(admin, partitions, committed, given.value("shift-by"), quiet)
    if scenario == "to-datetime":
        time_ms = resets.milliseconds_of(given.value("to-datetime"))
        return resets.at_time(admin, partitions, time_ms, warn)
    if scenario == "by-duration":
        time_ms = resets.time_before(resets.duration_of(given.value("by-duration")))
        return resets.at_time(admin, partitions, time_ms, warn)
    if scenario == "from-file":
        return plan_from_file(admin, given, group_id, groups)
    raise ValueError(
        f"Option '[reset-offsets]' requires one of the following scenarios: {list(SCENARIOS)}"
    )


def plan_from_file(admin: Admin, given: Given, group_id: str, groups: list[str]) -> resets.Offsets:
    path = given.value("from-file")
    try:
        with open(path, encoding="utf-8") as file:
            plans = resets.parse_plan(file.read(), groups)
    except OSError as error:
        raise Failure(f"cannot read {path}: {(error.strerror or '').lower()}") from None
    if group_id not in plans:
        print(f"\nError: No reset plan for group {group_id} found")
        return {}
    return resets.in_range(admin, plans[group_id], quiet)


def reset_partitions(admin: Admin, given: Given, group_id: str) -> list[TopicPartition]:
    from ottla.client.errors import UnknownTopicOrPartitionError

    if given.has("all-topics"):
        return sorted(admin.list_group_offsets(group_id)[group_id])
    if not given.has("topic"):
        raise ValueError("One of the reset scopes should be defined: --all-topics, --topic.")
    partitions, unknown = named_partitions(admin, given)
    if unknown:
        raise UnknownTopicOrPartitionError
    counts = {
        topic["name"]: len(topic["partitions"])
        for topic in admin.describe_topics(sorted({each.topic for each in partitions}))
    }
    missing = [each for each in partitions if each.partition >= counts.get(each.topic, 0)]
    if missing:
        listed = ",".join(f"{each.topic}-{each.partition}" for each in missing)
        raise UnknownTopicOrPartitionError(f'The partitions "{listed}" do not exist')
    return partitions


def warn(text: str) -> None:
    print(f"\n{text}")


def quiet(text: str) -> None:
    """Kafka logs these, and its tools do not show their log."""


def validate_regex(admin: Admin, given: Given) -> None:
    text = given.value("validate-regex")
    try:
        re.compile(text)
    except re.error as error:
        print(f"The regular expression `{text}` is invalid: {error.msg}.")
    else:
        print(f"The regular expression `{text}` is valid.")


def java_name(error: type) -> str:
    return f"org.apache.kafka.common.errors.{JAVA_NAMES.get(error.__name__) or error.__name__}"


def java_error(name: str) -> str:
    """An error as Java prints it: its class and its text."""
    from ottla.client.errors import BY_CODE

    made = next(made for made in BY_CODE.values() if made.__name__ == name)
    return f"{java_name(made)}: {made.description}"


class JavaNames(dict[str, str]):
    """Our names end in Error, Java's in Exception; a few differ more."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name) or name.removesuffix("Error") + "Exception"


JAVA_NAMES = JavaNames({"NonEmptyGroupError": "GroupNotEmptyException"})

ACT = {
    "list": list_groups,
    "describe": describe,
    "delete": delete,
    "reset-offsets": reset_offsets,
    "delete-offsets": delete_offsets,
    "validate-regex": validate_regex,
}
main = entry(run)
