"""A description in the other format: property files as TOML, TOML as property files.

`${…}` stays as it is, comments are left behind. What no agent reads (a part that no list names) is
kept as a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.settings.properties import Entry

from .check import LISTS, agents_of
from .options import FLAG, ITEMS, NAMES, NUMBER
from .schema import find_type
from .toml_files import LISTS_OF_TABLES, WITH_TYPE
from .types import PartKind, PartType

KINDS = {
    "sources": PartKind.SOURCE,
    "channels": PartKind.CHANNEL,
    "sinks": PartKind.SINK,
    "interceptors": PartKind.INTERCEPTOR,
    "selector": PartKind.SELECTOR,
    "processor": PartKind.PROCESSOR,
}
# Types that Flume knows by their class alone.
BY_CLASS = {"kafka": "", "uuid": "$Builder"}
BARE = re.compile(r"[A-Za-z0-9_-]+")
Values = dict[str, str]


def to_toml(entries: list[Entry]) -> str:
    """The text of a TOML file with the same agents."""
    values = {entry.name.strip(): entry.value.strip() for entry in entries}
    agents = agents_of(entries)
    blocks = []
    own = [name for name in values if name.partition(".")[0] not in agents]
    if own:
        blocks.append("\n".join(f"{key_text(name)} = {text(values[name])}" for name in own))
    for agent in agents:
        below = without_prefix(values, f"{agent}.")
        used: set[str] = set()
        for group in LISTS:
            used.add(group)
            for name in dict.fromkeys(below.get(group, "").replace(",", " ").split()):
                part = without_prefix(below, f"{group}.{name}.")
                used.update(f"{group}.{name}.{key}" for key in part)
                path = (agent, group, name)
                blocks += tables(path, part, KINDS.get(group))
        unread = [key for key in below if key not in used]
        rest = [f"# {key_text(agent)}.{dotted(key)} = {text(below[key])}" for key in unread]
        if rest:
            blocks.append("\n".join(["# Nobody reads these:", *rest]))
    return "\n\n".join(blocks) + "\n"


def without_prefix(values: Values, prefix: str) -> Values:
    return {key[len(prefix) :]: value for key, value in values.items() if key.startswith(prefix)}


def tables(path: tuple[str, ...], part: Values, kind: PartKind | None) -> Iterator[str]:
    """The table of a part, then those of its interceptors, its selector or its processor."""
    own, inner = dict(part), []
    named = own.pop("interceptors", "").split() if kind is PartKind.SOURCE else ()
    for name in dict.fromkeys(named):
        below = taken(own, f"interceptors.{name}.")
        inner.append(((*path, "interceptors", name), below, PartKind.INTERCEPTOR))
    word = {PartKind.SOURCE: "selector", None: "processor"}.get(kind, "")
    if word and (below := taken(own, f"{word}.")):
        inner.append(((*path, word), below, KINDS[word]))
    yield table(path, own, kind)
    for inner_path, below, inner_kind in inner:
        yield from tables(inner_path, below, inner_kind)


def taken(values: Values, prefix: str) -> Values:
    """What is below a prefix, which is removed."""
    found = without_prefix(values, prefix)
    for key in found:
        del values[prefix + key]
    return found


def table(path: tuple[str, ...], own: Values, kind: PartKind | None) -> str:
    found = find_type(kind, own.get("type", "")) if kind is not None else None
    type_ = found if isinstance(found, PartType) else None
    lines = [f"[{'.'.join(map(key_text, path))}]"]
    renamed = {} if type_ is None else type_.renamed
    values = {renamed.get(key, key): value for key, value in own.items()}
    values.update({key: value for key, value in own.items() if key not in renamed})
    if "type" in values:
        name = values.pop("type")
        lines.append(f"type = {text(name if found is None else found.name)}")
    listed = implied_lists(values)
    with_type = [name.removeprefix(f"{path[-1]}.") for name in WITH_TYPE]
    parents = {key for key in values if any(other.startswith(f"{key}.") for other in values)}
    for key in in_order(values, listed):
        if key in listed:
            continue
        value = value_of(type_, key, values[key])
        if key in parents and key in with_type:
            lines.append(f"{dotted(f'{key}.type')} = {value}")
        elif any(
            key.startswith(f"{parent}.") and parent not in (*with_type, *listed)
            for parent in parents
        ):
            lines.append(f"{quoted(key)} = {value}")
        else:
            lines.append(f"{dotted(key)} = {value}")
    return "\n".join(lines)


def implied_lists(values: Values) -> dict[str, list[str]]:
    """Lists that repeat the names of the keys below them, with those names."""
    found = {}
    for name in LISTS_OF_TABLES:
        below = dict.fromkeys(key.partition(".")[0] for key in without_prefix(values, f"{name}."))
        names = values.get(name, "").split()
        if below and set(names) == set(below):
            found[name] = names
    return found


def in_order(values: Values, listed: dict[str, list[str]]) -> list[str]:
    """Keys in their order; those below an implied list in the order of the list."""

    def place(key: str) -> tuple[int, int]:
        for name, names in listed.items():
            if key.startswith(f"{name}."):
                first = next(n for n, other in enumerate(values) if other.startswith(f"{name}."))
                return first, names.index(key.split(".")[name.count(".") + 1])
        return list(values).index(key), 0

    return sorted(values, key=place)


def value_of(type_: PartType | None, key: str, value: str) -> str:
    """The value with its type, where its text has the form of one."""
    if key in ("channels", "sinks"):
        return array(value.replace(",", " ").split())
    option = type_.option(key) if type_ is not None else None
    if option is None or option.name.endswith(".") or "${" in value:
        return text(value)
    if option.kind is NUMBER and re.fullmatch(r"-?(0|[1-9][0-9]*)", value):
        return value
    if option.kind is FLAG and value.lower() in ("true", "false"):
        return value.lower()
    if option.kind is NAMES:
        return array(value.split())
    if option.kind is ITEMS:
        return array([item.strip() for item in value.split(",") if item.strip()])
    return text(value)


def array(items: list[str]) -> str:
    return f"[{', '.join(map(text, items))}]"


def text(value: str) -> str:
    """A string: literal where backslashes would have to be doubled."""
    if "\\" in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    return quoted(value)


def quoted(value: str) -> str:
    escaped = "".join(
        f"\\{character}"
        if character in '"\\'
        else character
        if character.isprintable()
        else f"\\u{ord(character):04X}"
        for character in value
    )
    return f'"{escaped}"'


def key_text(word: str) -> str:
    return word if BARE.fullmatch(word) else quoted(word)


def dotted(key: str) -> str:
    return ".".join(map(key_text, key.split(".")))


def to_properties(entries: list[Entry]) -> str:
    """The text of a property file with the same agents, for Flume too where it knows the types."""
    lines: list[str] = []
    group = ""
    for entry in entries:
        words = entry.name.split(".")
        here = ".".join(words[:3]) if len(words) > 3 else ".".join(words[:2])
        if lines and here != group:
            lines.append("")
        group = here
        value = flume_type(words, entry.value) if words[-1] == "type" else entry.value
        lines.append(f"{property_key(entry.name)} = {property_value(value)}")
    return "\n".join(lines) + "\n"


def flume_type(words: list[str], value: str) -> str:
    """The type's name as Flume finds it."""
    kind = KINDS.get(words[-2]) or KINDS.get(words[-3] if len(words) > 2 else "")
    found = find_type(kind, value) if kind is not None else None
    if not isinstance(found, PartType) or found.name not in BY_CLASS or not found.classes:
        return value
    return found.classes[0] + BY_CLASS[found.name]


def property_key(key: str) -> str:
    return re.sub(r"([\\ :=#!])", r"\\\1", ascii_text(key))


def property_value(value: str) -> str:
    escaped = ascii_text(value.replace("\\", "\\\\")).replace("\n", "\\n").replace("\t", "\\t")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def ascii_text(value: str) -> str:
    """Java reads \\uXXXX whatever the character set of the file."""
    return "".join(
        character
        if ord(character) < 128
        else "".join(
            f"\\u{unit:04X}" for unit in memoryview(character.encode("utf-16-le")).cast("H")
        )
        for character in value
    )
