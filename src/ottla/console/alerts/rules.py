"""What is watched and who learns of it: rules, receivers and silences, with their checks.

Every field is checked here, wherever it comes from: a page, the API or the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from ..series import Measure

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
PATTERN_CHARACTERS_MAX = 249
NOTE_CHARACTERS_MAX = 1000
DURATION_S_MAX = 7 * 24 * 3600
RULES_MAX = 500
RECEIVERS_MAX = 100
SILENCES_MAX = 1000
ADDRESSES_MAX = 50


class RuleError(ValueError):
    """What is wrong, in a sentence that names the field."""


class Watched(StrEnum):
    """What a rule looks at besides the measures of `series.py`."""

    GROUP_STATE = "group.state"  # 1 where it is one of `states`
    CLUSTER_SILENT = "cluster.silent"  # seconds since the cluster last answered
    BROKER_DOWN = "broker.down"  # 1 or 0
    PIPELINE_STOPPED = "pipeline.stopped"  # 1 or 0


KINDS: tuple[str, ...] = (*Watched, *Measure)
YES_OR_NO = frozenset({Watched.GROUP_STATE, Watched.BROKER_DOWN, Watched.PIPELINE_STOPPED})


class Side(StrEnum):
    ABOVE = "above"
    BELOW = "below"


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires for each subject whose value is beyond `threshold` for `for_s`, and resolves where it
    is back at `clear` (by default the threshold) for `clear_for_s`."""

    name: str
    watch: str
    side: Side = Side.ABOVE
    threshold: float = 0.0
    clear: float | None = None
    for_s: int = 60
    clear_for_s: int = 0
    repeat_s: int = 4 * 3600  # 0: told once
    clusters: str = "*"
    subjects: str = "*"  # of the kind that `watch` begins with: broker ids, topics, groups …
    topics: str = ""  # of a group's lag: per topic of it; empty: the group as a whole
    states: tuple[str, ...] = ()  # of group.state
    severity: Severity = Severity.WARNING
    receivers: tuple[str, ...] = ()
    note: str = ""  # what to do, sent along
    enabled: bool = True

    def matches_cluster(self, cluster: str) -> bool:
        return fnmatchcase(cluster, self.clusters)

    def breaches(self, value: float) -> bool:
        return value > self.threshold if self.side is Side.ABOVE else value < self.threshold

    def clears(self, value: float) -> bool:
        limit = self.threshold if self.clear is None else self.clear
        return value <= limit if self.side is Side.ABOVE else value >= limit


class ReceiverKind(StrEnum):
    EMAIL = "email"
    SLACK = "slack"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    FEISHU = "feishu"
    JSON = "json"


class Encryption(StrEnum):
    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go. Its address may bear a secret, as Slack's do: see `described`."""

    name: str
    kind: ReceiverKind
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)  # DingTalk's and Feishu's signature
    host: str = ""  # of e-mail
    port: int = 0
    encryption: Encryption = Encryption.STARTTLS
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""
    to: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """Where it leads, without what is secret of it."""
        if self.kind is ReceiverKind.EMAIL:
            return f"{', '.join(self.to)} by {self.host}:{self.port}"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


@dataclass(frozen=True, slots=True)
class Silence:
    """No message of alerts that all three patterns match, until it ends."""

    id: str
    rules: str
    clusters: str
    subjects: str
    until_ms: int
    user: str
    note: str = ""

    def covers_cluster(self, cluster: str) -> bool:
        return fnmatchcase(cluster, self.clusters)

    def covers(self, rule: str, cluster: str, subject: str) -> bool:
        return (
            fnmatchcase(rule, self.rules)
            and fnmatchcase(cluster, self.clusters)
            and fnmatchcase(subject, self.subjects)
        )


def check_rule(rule: Rule, receivers: Mapping[str, Receiver] | None = None) -> Rule:
    """The rule, or RuleError; with `receivers` also that it names only those."""
    _name(rule.name)
    if rule.watch not in KINDS:
        raise RuleError(f"watch: one of {', '.join(KINDS)} (got {rule.watch!r})")
    for name in ("threshold", "clear"):
        value = getattr(rule, name)
        if value is not None and not abs(value) < 1e18:
            raise RuleError(f"{name}: a number below 1e18 (got {value})")
    for name in ("for_s", "clear_for_s", "repeat_s"):
        value = getattr(rule, name)
        if not 0 <= value <= DURATION_S_MAX:
            raise RuleError(f"{name}: 0 to {DURATION_S_MAX} seconds (got {value})")
    if 0 < rule.repeat_s < 60:
        raise RuleError(f"repeat_s: 0 (once) or at least 60 seconds (got {rule.repeat_s})")
    if rule.clear is not None:
        wrong = (
            rule.clear > rule.threshold
            if rule.side is Side.ABOVE
            else (rule.clear < rule.threshold)
        )
        if wrong:
            other = "above" if rule.side is Side.ABOVE else "below"
            raise RuleError(
                f"clear: not {other} the threshold, {rule.threshold:g} (got {rule.clear:g})"
            )
    for name in ("clusters", "subjects"):
        _pattern(name, getattr(rule, name))
    if rule.topics:
        _pattern("topics", rule.topics)
        if rule.watch not in (Measure.GROUP_LAG, Measure.GROUP_LAG_MS):
            raise RuleError(f"topics: only with group.lag and group.lag_ms (got {rule.watch})")
    if (rule.watch == Watched.GROUP_STATE) != bool(rule.states):
        raise RuleError("states: needed by group.state, for example Empty and Dead; only by it")
    if len(rule.note) > NOTE_CHARACTERS_MAX:
        raise RuleError(f"note: at most {NOTE_CHARACTERS_MAX} characters (got {len(rule.note)})")
    if receivers is not None:
        for receiver in rule.receivers:
            if receiver not in receivers:
                raise RuleError(f"receivers: there is no receiver {receiver!r}")
    return rule


def check_receiver(receiver: Receiver) -> Receiver:
    _name(receiver.name)
    if receiver.kind is ReceiverKind.EMAIL:
        if not receiver.host or not receiver.host.isprintable() or " " in receiver.host:
            raise RuleError(f"host: the name of an SMTP server (got {receiver.host!r})")
        if not 0 < receiver.port < 65536:
            raise RuleError(f"port: 1 to 65535 (got {receiver.port})")
        if not 0 < len(receiver.to) <= ADDRESSES_MAX:
            raise RuleError(f"to: 1 to {ADDRESSES_MAX} addresses (got {len(receiver.to)})")
        for address in (receiver.sender, *receiver.to):
            if not re.fullmatch(r"[^\s@<>,\"]+@[^\s@<>,\"]+", address):
                raise RuleError(f"sender, to: an address such as ops@example.org (got {address!r})")
        if receiver.password and receiver.encryption is Encryption.NONE:
            raise RuleError("encryption: a password is sent by starttls or tls only")
    else:
        try:
            parts = urlsplit(receiver.url)
            right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            right = False
        if not right or not receiver.url.isascii() or not receiver.url.isprintable():
            raise RuleError("url: http:// or https:// with a host (what was given may be secret)")
    return receiver


def from_mapping(kind: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """A Rule or Receiver of TOML or JSON: each field by its name, or RuleError."""
    known = {each.name: each for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise RuleError(f"{where}: unknown field {name!r}; one of {', '.join(known)}")
        try:
            values[name] = _READ[str(known[name].type)](value)
        except (ValueError, TypeError) as error:
            raise RuleError(f"{where}: {name}: {error}") from None
    try:
        return kind(**values)
    except TypeError:
        needed = [name for name in ("name", "watch", "kind") if name in known]
        raise RuleError(f"{where}: {' and '.join(needed)} must be given") from None


def _one_of(kind: type[StrEnum]) -> Callable[[object], StrEnum]:
    def read(value: object) -> StrEnum:
        try:
            return kind(str(value))
        except ValueError:
            raise ValueError(f"one of {', '.join(kind)} (got {value!r})") from None

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text (got {value!r})")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number (got {value!r})")
    return float(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a whole number (got {value!r})")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false (got {value!r})")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a list of texts (got {value!r})")
    return tuple(_text(each) for each in value)


_READ: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "float": _number,
    "float | None": lambda value: None if value is None else _number(value),
    "int": _whole,
    "bool": _boolean,
    "tuple[str, ...]": _texts,
    "Side": _one_of(Side),
    "Severity": _one_of(Severity),
    "ReceiverKind": _one_of(ReceiverKind),
    "Encryption": _one_of(Encryption),
}


def _name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise RuleError(
            f"name: 1 to 80 letters, digits, spaces and . _ -, first a letter or digit (got "
            f"{name[:80]!r})"
        )


def _pattern(name: str, pattern: str) -> None:
    if not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX:
        raise RuleError(f"{name}: a pattern of 1 to {PATTERN_CHARACTERS_MAX} characters")
