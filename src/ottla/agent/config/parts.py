"""One part from its keys: its type, and each option parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ottla.settings.properties import Entry

from .client_options import CLIENTS, check_client_option
from .description import Part, Problem
from .options import PARSERS, BadValue, Kind, Option, Options, Value
from .schema import find_type, names_of
from .spelling import nearest
from .types import PartKind, PartType, RefusedType

UNKNOWN_REFERENCE = re.compile(r"\$\{\w[\w.]*\}")
SECRETS = ("password", "secret", "jaas", "ssl.keystore.key")  # in names of clients' options
SHELL_OPTIONS = ("command",)  # a shell may know it


class Keys:
    """The entries below a prefix, by what follows it. The last of equal keys counts, as in Java."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._used: set[str] = set()
        self.named: dict[str, Entry] = {}  # part -> the list that names it

    def add(self, key: str, entry: Entry, warn: Callable[[Entry, str], None]) -> None:
        before = self._entries.pop(key, None)
        if before is not None:
            warn(before, f"is said again ({entry.where}): the last one counts")
        self._entries[key] = entry

    def taken(self, key: str) -> Entry | None:
        """The entry of a key, which counts as used."""
        self._used.add(key)
        return self._entries.get(key)

    def mark_used(self, word: str) -> None:
        """All keys that begin with this word belong to somebody."""
        self._used.update(key for key in self._entries if key.partition(".")[0] == word)

    def below(self, prefix: str) -> Keys:
        found = Keys()
        found._entries = {
            key[len(prefix) :]: entry
            for key, entry in self._entries.items()
            if key.startswith(prefix) and len(key) > len(prefix)
        }
        return found

    def first_words(self) -> dict[str, Entry]:
        """What stands before the first dot, each with its first entry."""
        found: dict[str, Entry] = {}
        for key, entry in self._entries.items():
            found.setdefault(key.partition(".")[0], entry)
        return found

    def items(self) -> Iterable[tuple[str, Entry]]:
        return self._entries.items()

    def unused(self) -> list[tuple[str, Entry]]:
        return [(key, entry) for key, entry in self._entries.items() if key not in self._used]


class PartReader:
    """Reads parts, and collects what is wrong with them."""

    def __init__(self, problems: list[Problem], warnings: list[Problem]) -> None:
        self._problems = problems
        self._warnings = warnings

    def read(
        self,
        kind: PartKind,
        name: str,
        prefix: str,
        keys: Keys,
        place: Entry,
        also: Iterable[str] = (),
        default: str = "",
    ) -> Part | None:
        """The part, or None where something is wrong. `also` are first words of keys that are
        somebody else's; `place` is where the part is named."""
        type_ = self._type(kind, prefix, keys, place, default)
        if type_ is None:
            return None
        before = len(self._problems)
        where = entry.where if (entry := keys.taken("type")) is not None else place.where
        options = self._options(type_, prefix, keys, where)
        for word in also:
            keys.mark_used(word)
        self.warn_of_unused(prefix, keys, [option.name for option in type_.options])
        if len(self._problems) > before:
            return None
        for complaint in type_.between(options):
            entry = keys.taken(complaint.option)
            at = entry.where if entry is not None else where
            hint = f"{prefix}.{complaint.hint}" if "=" in complaint.hint else complaint.hint
            key = f"{prefix}.{complaint.option}"
            self._problems.append(Problem(at, key, complaint.rule, hint))
        return Part(name, type_, options, where) if len(self._problems) == before else None

    def _type(
        self, kind: PartKind, prefix: str, keys: Keys, place: Entry, default: str
    ) -> PartType | None:
        entry = keys.taken("type")
        word = entry.value.strip() if entry is not None and entry.value.strip() else default
        names = names_of(kind)
        if not word:
            rule = f"must be set: the type of the {kind.value}"
            hint = f"{prefix}.type = {names[0]}"
            self._problems.append(Problem(place.where, f"{prefix}.type", rule, hint))
            return None
        found = find_type(kind, word)
        where = entry.where if entry is not None else place.where
        if isinstance(found, RefusedType):
            rule = f"cannot be {found.name}: {found.why}"
            self._problems.append(Problem(where, f"{prefix}.type", rule, found.instead))
            return None
        if found is None:
            near = nearest(word.lower(), names)
            java = " here, where Java's classes do not run" if "." in word else ""
            rule = f"is no type of {kind.value}{java}: {', '.join(names)} are"
            hint = f"{prefix}.type = {near or names[0]}"
            self._problems.append(Problem(where, f"{prefix}.type", rule, hint, word))
        return found

    def _options(self, type_: PartType, prefix: str, keys: Keys, where: str) -> Options:
        values: dict[str, Value] = {}
        families: dict[str, dict[str, str]] = {}
        given: set[str] = set()
        for option in type_.options:
            if option.name.endswith("."):
                families[option.name] = {}
            else:
                values[option.name] = default_of(option)
        # Former names first: the right name is said later and wins.
        for written, entry in sorted(keys.items(), key=lambda item: item[0] not in type_.renamed):
            name = type_.renamed.get(written, written)
            found = type_.option(name)
            if found is None:
                continue
            keys.taken(written)
            if not entry.value.strip():
                continue  # an empty value is none, as in Flume
            value = self._value(found, name, entry)
            if value is None:
                continue
            given.add(name)
            if name == found.name:
                values[name] = value
            else:
                families[found.name][name[len(found.name) :]] = entry.value.strip()
        for option in type_.options:
            if option.required and option.name not in given:
                self._missing(f"{prefix}.{option.name}", option, where)
        return Options(values, families, frozenset(given))

    def _value(self, option: Option, name: str, entry: Entry) -> Value:
        """The value of an entry; None if it is wrong or goes nowhere."""
        idle = option.idle
        try:
            value = option.parse(entry.value)
            if option.name in CLIENTS:
                own = name[len(option.name) :]
                idle = check_client_option(option.name, own, entry.value.strip())
        except BadValue as bad:
            hint = f"{entry.name} = {bad.hint}" if bad.hint else bad.instead
            shown = "(hidden)" if is_secret(option, name) else entry.value.strip()
            self._problems.append(Problem(entry.where, entry.name, bad.rule, hint, shown))
            return None
        if UNKNOWN_REFERENCE.search(entry.value) and name not in SHELL_OPTIONS:
            rule = "has ${…} that nobody sets: it stays as it is"
            self._warnings.append(Problem(entry.where, entry.name, rule, ""))
        if idle:
            rule = f"has no effect: {idle}"
            self._warnings.append(Problem(entry.where, entry.name, rule, ""))
        return None if idle and option.name in CLIENTS else value

    def _missing(self, key: str, option: Option, where: str) -> None:
        if any(problem.key == key for problem in self._problems):
            return  # it is there, and wrong
        rule = f"must be set: {option.doc[0].lower()}{option.doc[1:]}".removesuffix(".")
        example = option.rule.example if option.rule is not None else ""
        self._problems.append(Problem(where, key, rule, f"{key} = {example or '…'}"))

    def warn_of_unused(self, prefix: str, keys: Keys, names: Iterable[str]) -> None:
        for key, entry in keys.unused():
            near = nearest(key, names, cutoff=0.75)
            hint = f"{prefix}.{near}" if near else ""
            self._warnings.append(Problem(entry.where, entry.name, "is unknown, and ignored", hint))


def is_secret(option: Option, name: str) -> bool:
    """Whether a value must not be shown."""
    return option.kind is Kind.PASSWORD or any(word in name.lower() for word in SECRETS)


def default_of(option: Option) -> Value:
    """The default, with `~` where a path has one."""
    if option.kind is Kind.PATH and isinstance(option.default, str):
        return PARSERS[Kind.PATH](option.default)
    return option.default
