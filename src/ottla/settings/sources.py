"""Where options come from besides files: `--set name=value` and the environment; and the table that
`--list-options` prints.

The environment spells `num.partitions` as `OTTLA_NUM_PARTITIONS`. Precedence, lowest first: the
declared default, the file, the environment, `--set`, a flag such as `--listen`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.settings.broker import BROKER_OPTIONS
from ottla.settings.checks import Problem, SettingsError
from ottla.settings.option import Option, Standing, Update
from ottla.settings.properties import Entry
from ottla.settings.topic import SYNONYMS, TOPIC_CONFIGS

PREFIX = "OTTLA_"


def entry_of_assignment(text: str, where: str = "--set") -> Entry:
    """`name=value` as it stands on a command line. Raises SettingsError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        hint = f"{where} num.partitions=3"
        raise SettingsError([Problem(where, text, "must be name=value", hint, "")])
    return Entry(name.strip(), value.strip(), where)


def entries_of_environment(environment: Mapping[str, str]) -> list[Entry]:
    """The options that the environment sets. Other names with the prefix are not ours to judge."""
    return [
        Entry(name, value, variable)
        for variable, value in sorted(environment.items())
        if variable.startswith(PREFIX)
        for name in [variable[len(PREFIX) :].lower().replace("_", ".")]
        if name in BROKER_OPTIONS
    ]


class Row(NamedTuple):
    """One line of `--list-options`."""

    name: str
    type: str
    default: str
    rule: str
    update: str  # "at start", "at once"
    standing: str  # "", "no effect here", "refused"
    doc: str


_UPDATES = {
    Update.READ_ONLY: "at start",
    Update.PER_BROKER: "at once, per broker",
    Update.CLUSTER_WIDE: "at once",
}
_STANDINGS = {
    Standing.HONOURED: "",
    Standing.IDLE: "no effect here",
    Standing.REFUSED: "refused",
}


def broker_rows() -> list[Row]:
    return [
        _row(option, _UPDATES[option.update])
        for _, option in sorted(BROKER_OPTIONS.items())
        if not option.internal
    ]


def topic_rows() -> list[Row]:
    rows = []
    for name, option in sorted(TOPIC_CONFIGS.items()):
        if not option.internal:
            synonyms = ", ".join(broker_name for broker_name, _ in SYNONYMS.get(name, ()))
            row = _row(option, "at once")
            rows.append(row._replace(default=f"{row.default} ({synonyms})") if synonyms else row)
    return rows


def _row(option: Option, update: str) -> Row:
    text = option.text(option.default)
    return Row(
        option.name,
        option.type.name.lower(),
        "" if text is None else text,
        option.rule.text if option.rule else "",
        update,
        _STANDINGS[option.standing],
        option.doc,
    )
