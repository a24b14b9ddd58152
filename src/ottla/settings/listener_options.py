"""Options of one listener: `listener.name.NAME.ssl.keystore.location`, and of one mechanism of it:
`listener.name.NAME.scram-sha-256.sasl.jaas.config`.

An option without the prefix holds for every listener that has none of its own.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.option import InvalidValue, Option, Value
from ottla.settings.properties import Entry

PREFIX = "listener.name."
# What Kafka reads with a listener's name before it, besides `ssl.` and `sasl.`.
OTHERS = frozenset(
    (
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "principal.builder.class",
    )
)
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")


class ListenerOption(NamedTuple):
    listener: str  # in lower case
    mechanism: str  # in lower case; empty: of the whole listener
    option: Option


ListenerValues = Mapping[tuple[str, str, str], Value]  # by listener, mechanism and name


def listener_option(name: str) -> ListenerOption | None:
    """What a name with the prefix stands for; None: no option that a listener could have."""
    if not name.startswith(PREFIX):
        return None
    listener, dot, rest = name.removeprefix(PREFIX).partition(".")
    if not dot:
        return None
    mechanism = next((each for each in MECHANISMS if rest.startswith(each + ".")), "")
    own = rest.removeprefix(mechanism + ".") if mechanism else rest
    option = BROKER_OPTIONS.get(own)
    if option is None or not (own.startswith(("ssl.", "sasl.")) or own in OTHERS):
        return None
    return ListenerOption(listener.lower(), mechanism, option)


def parse_listener_entries(
    entries: Iterable[Entry],
) -> tuple[dict[tuple[str, str, str], Value], list[tuple[InvalidValue, Entry, Option]]]:
    """The values, and what is wrong with others."""
    values: dict[tuple[str, str, str], Value] = {}
    wrong = []
    for entry in entries:
        found = listener_option(entry.name)
        if found is None:
            continue
        try:
            value = found.option.parse(entry.value)
        except InvalidValue as error:
            wrong.append((error, entry, found.option))
        else:
            values[found.listener, found.mechanism, found.option.name] = value
    return values, wrong
