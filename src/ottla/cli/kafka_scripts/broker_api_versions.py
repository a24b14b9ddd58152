"""kafka-broker-api-versions.sh: which APIs each broker has, in which versions."""

from __future__ import annotations

from collections.abc import Sequence

from .options import BOOTSTRAP, COMMAND_CONFIG, Parser
from .running import admin_of, entry

PARSER = Parser(
    "kafka-broker-api-versions.sh",
    "show the APIs of each broker and their versions",
    [BOOTSTRAP, COMMAND_CONFIG],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    with admin_of(given) as admin:
        for broker in admin.describe_cluster()["brokers"]:
            rack = "null" if broker["rack"] is None else broker["rack"]
            fenced = str(broker["is_fenced"]).lower()
            address = f"{broker['host']}:{broker['port']}"
            node = broker["broker_id"]
            print(f"{address} (id: {node} rack: {rack} isFenced: {fenced}) -> (")
            print(",\n".join(api_lines(admin.api_versions(node))))
            print(")")
    return 0


def api_lines(theirs: dict[int, tuple[int, int]]) -> list[str]:
    """One line for each API that either side knows."""
    from ottla.client.network.api_versions import API_NAMES, USABLE

    lines = []
    for key in sorted({*theirs, *API_NAMES}):
        name = API_NAMES.get(key, "UNKNOWN")
        if key not in theirs:
            lines.append(f"\t{name}({key}): UNSUPPORTED")
            continue
        low, high = theirs[key]
        lines.append(f"\t{name}({key}): {span(low, high)} [{usable(USABLE.get(key), low, high)}]")
    return lines


def span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def usable(ours: tuple[int, int] | None, low: int, high: int) -> str:
    if ours is None:
        return "unusable: unknown to this client"
    if ours[1] < low:
        return "unusable: node too new"
    if high < ours[0]:
        return "unusable: node too old"
    return f"usable: {min(ours[1], high)}"


main = entry(run)
