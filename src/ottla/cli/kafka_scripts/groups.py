"""kafka-groups.sh: groups of all types."""

from __future__ import annotations

from collections.abc import Sequence

from .group_tables import table
from .options import BOOTSTRAP, COMMAND_CONFIG, Option, Parser
from .running import admin_of, entry

GROUP_TYPES = ("classic", "consumer", "share", "streams")
LEAST_WIDTH = 20

PARSER = Parser(
    "kafka-groups.sh",
    "list groups of all types",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", about="list the groups"),
        Option("group-type", "TYPE", f"only this type: {', '.join(GROUP_TYPES)}"),
        Option("protocol", "PROTOCOL", "only this type of protocol"),
        Option("consumer", about="only groups of consumers, old and new and of offsets alone"),
        Option("share", about="only share groups"),
        Option("streams", about="only groups of streams"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    given.one_of("list")
    for name in ("share", "streams"):
        given.exclude("consumer", ["group-type", "protocol", name])
        given.exclude(name, ["group-type", "protocol"])
    kind = given.value("group-type")
    if kind is not None and kind.lower() not in GROUP_TYPES:
        PARSER.refuse("--group-type must be a valid group type.")
    with admin_of(given) as admin:
        rows = []
        for group in admin.list_groups():
            its = group["group_type"].lower() or "unknown"
            protocol = group["protocol_type"]
            if given.has("consumer") and not (
                its == "consumer" or (its == "classic" and protocol in ("consumer", ""))
            ):
                continue
            if any(given.has(name) and its != name for name in ("share", "streams")):
                continue
            if (kind is not None and its != kind.lower()) or (
                given.has("protocol") and protocol != given.value("protocol")
            ):
                continue
            rows.append([group["group_id"], its.capitalize(), protocol])
    rows.sort()
    width = max([LEAST_WIDTH, *(len(row[0]) for row in rows)])
    header, *lines = table([("GROUP", width), ("TYPE", width), ("PROTOCOL", width)], rows)
    print(header)
    for line in lines:
        print(f"{line} ")
    return 0


main = entry(run)
