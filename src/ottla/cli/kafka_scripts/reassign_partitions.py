"""kafka-reassign-partitions.sh: move partitions to other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli import log_dir_moves, reassigning
from ottla.cli.failure import Failure
from ottla.cli.reassignment_plans import (
    PlanError,
    Planned,
    check,
    listed,
    name_of,
    plan_text,
    read_brokers,
    read_plan,
    read_topics,
)

from .options import COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.errors import KafkaError
    from ottla.client.structs import TopicPartition

# What each action needs, and may have beside that.
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generate": (("topics-to-move-json-file", "broker-list"), ("disable-rack-aware",)),
    "execute": (
        ("reassignment-json-file",),
        (
            "additional",
            "throttle",
            "replica-alter-log-dirs-throttle",
            "timeout",
            "disallow-replication-factor-change",
        ),
    ),
    "verify": (("reassignment-json-file",), ("preserve-throttles",)),
    "cancel": (("reassignment-json-file",), ("preserve-throttles", "timeout")),
    "list": ((), ()),
}
ALWAYS = ("bootstrap-server", "command-config")
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
VERIFY_LATER = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)

PARSER = Parser(
    "kafka-reassign-partitions.sh",
    "move partitions to other brokers",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first"),
        Option(
            "bootstrap-controller",
            "HOST:PORT",
            skipped="brokers and controllers are one here; use --bootstrap-server",
        ),
        COMMAND_CONFIG,
        Option("generate", about="propose replicas for topics on other brokers"),
        Option("execute", about="begin a reassignment"),
        Option("verify", about="say how far it is; remove its throttle when it is done"),
        Option("cancel", about="cancel it"),
        Option("list", about="list what is under way"),
        Option(
            "reassignment-json-file",
            "FILE",
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}',
        ),
        Option(
            "topics-to-move-json-file", "FILE", '{"version":1,"topics":[{"topic":"t"}]}; --generate'
        ),
        Option("broker-list", "1,2,3", "the brokers to move them to; --generate"),
        Option("disable-rack-aware", about="take no account of racks; --generate"),
        Option("additional", about="beside those under way, or in their place; --execute"),
        Option(
            "disallow-replication-factor-change",
            about="refuse another number of replicas; --execute",
        ),
        Option("throttle", "BYTES", "bytes a second between brokers; --execute", -1, int),
        Option(
            "replica-alter-log-dirs-throttle",
            "BYTES",
            "bytes a second between directories; --execute",
            -1,
            int,
        ),
        Option("timeout", "MS", "for moves between directories to begin", 10_000, int),
        Option("preserve-throttles", about="leave throttles as they are"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    action = given.one_of(*ACTIONS)
    required, permitted = ACTIONS[action]
    given.require("bootstrap-server", *required)
    given.exclude(
        action,
        [
            option.name
            for option in PARSER.options
            if option.name not in (*ALWAYS, action, *required, *permitted)
        ],
    )
    try:
        return {
            "generate": generate,
            "execute": execute,
            "verify": verify,
            "cancel": cancel,
            "list": list_ongoing,
        }[action](given)
    except PlanError as error:
        raise Failure(str(error), f"{PARSER.tool} --help") from None


def generate(given: Given) -> int:
    brokers = read_brokers(given.value("broker-list"))
    topics = read_topics(text_of(given.value("topics-to-move-json-file")))
    with admin_of(given) as admin:
        current, proposed = reassigning.proposal(
            admin, topics, brokers, rack_aware=not given.has("disable-rack-aware")
        )
        text = current_text(admin, current)
    print(f"Current partition replica assignment\n{text}\n")
    print(f"Proposed partition reassignment configuration\n{plan_text(proposed)}")
    return 0


def execute(given: Given) -> int:
    planned = plan_of(given)
    check(planned)
    targets = planned.replicas
    names = sorted(targets)
    with admin_of(given) as admin:
        ongoing = admin.list_partition_reassignments()
        if ongoing and not given.has("additional"):
            print(EXISTING)
            return 1
        reassigning.check_brokers(admin, targets.values())
        current = reassigning.assignments_of(admin, names)
        print(
            f"Current partition replica assignment\n\n{current_text(admin, current)}\n\n"
            "Save this to use as the --reassignment-json-file option during rollback"
        )
        rate, log_dir_rate = given.value("throttle"), given.value("replica-alter-log-dirs-throttle")
        if rate >= 0 or log_dir_rate >= 0:
            print(VERIFY_LATER)
        if rate >= 0:
            reassigning.throttle(admin, reassigning.moves(ongoing, targets, current), rate)
            print(f"The inter-broker throttle limit was set to {rate} B/s")
        if log_dir_rate >= 0:
            brokers = [broker_id for _, broker_id in planned.log_dirs]
            reassigning.throttle_log_dirs(admin, brokers, log_dir_rate)
            print(f"The replica-alter-dir throttle limit was set to {log_dir_rate} B/s")
        errors = admin.reassignment_errors(
            targets,
            allow_replication_factor_change=not given.has("disallow-replication-factor-change"),
        )
        if refused("Error reassigning partition(s):", errors):
            return 1
        print(f"Successfully started partition reassignment{plural(names)} for {joined(names)}")
        log_dir_moves.begin(admin, log_dir_moves.targets_of(planned), given.value("timeout"))
    return 0


def current_text(admin: Admin, current: dict[TopicPartition, list[int]]) -> str:
    """The JSON to go back with: where each replica is now."""
    brokers = {broker_id for replicas in current.values() for broker_id in replicas}
    return plan_text(current, reassigning.log_dirs(admin, brokers))


def verify(given: Given) -> int:
    planned = plan_of(given)
    with admin_of(given) as admin:
        found, moving = reassigning.progress(admin, planned.partitions)
        print("Status of partition reassignment:")
        for each in found:
            print(status_of(each))
        states = log_dir_moves.states(admin, log_dir_moves.targets_of(planned))
        print("\n".join(each.words for each in states))
        moving |= any(each.is_active for each in states)
        if not moving and not given.has("preserve-throttles"):
            clear_throttles(admin, planned)
    return 0


def status_of(each: reassigning.Progress) -> str:
    name = name_of(each.partition)
    if not each.done:
        return f"Reassignment of partition {name} is still in progress."
    if each.current == each.target:
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{listed(each.current)} rather than {listed(each.target)}."
    )


def cancel(given: Given) -> int:
    planned = plan_of(given)
    with admin_of(given) as admin:
        names = sorted(admin.list_partition_reassignments(list(planned.replicas)))
        if names:
            errors = admin.reassignment_errors(dict.fromkeys(names))
            wrong = sum(error is not None for error in errors.values())
            many = "" if wrong == 1 else "s"
            if refused(f"Error cancelling partition reassignment{many} for:", errors):
                return 1
            print(
                f"Successfully cancelled partition reassignment{plural(names)} for: {joined(names)}"
            )
        else:
            print("None of the specified partition reassignments are active.")
        back = log_dir_moves.way_back(admin, planned)
        if back:
            log_dir_moves.begin(admin, back, given.value("timeout"))
        else:
            print("None of the specified partition moves are active.", end="")  # as Kafka's does
        if not given.has("preserve-throttles"):
            clear_throttles(admin, planned)
    return 0


def list_ongoing(given: Given) -> int:
    with admin_of(given) as admin:
        ongoing = admin.list_partition_reassignments()
    if not ongoing:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for each in sorted(ongoing):
        now = ongoing[each]
        line = f"{name_of(each)}: replicas: {listed(now['replicas'])}."
        if now["adding_replicas"]:
            line += f" adding: {listed(now['adding_replicas'])}."
        if now["removing_replicas"]:
            line += f" removing: {listed(now['removing_replicas'])}."
        print(line)
    return 0


def clear_throttles(admin: Admin, planned: Planned) -> None:
    known = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
    brokers = sorted(known.union(*planned.replicas.values()))
    topics = sorted({each.topic for each in planned.replicas})
    print(f"Clearing broker-level throttles on broker{plural(brokers)} {listed(brokers)}")
    reassigning.clear_broker_throttles(admin, brokers)
    print(f"Clearing topic-level throttles on topic{plural(topics)} {','.join(topics)}")
    reassigning.clear_topic_throttles(admin, topics)


def refused(title: str, errors: dict[TopicPartition, KafkaError | None]) -> bool:
    """Print what could not be done; whether there is such."""
    wrong = {each: error for each, error in errors.items() if error is not None}
    if wrong:
        print(title)
        for each in sorted(wrong):
            print(f"{name_of(each)}: {reassigning.words_of(wrong[each])}")
    return bool(wrong)


def plan_of(given: Given) -> Planned:
    return read_plan(text_of(given.value("reassignment-json-file")))


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        raise Failure(f"cannot read {path}", "a file that is there") from None


def plural(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"


def joined(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(name_of, partitions))


main = entry(run)
