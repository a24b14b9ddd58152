"""From entries to an agent's description: one validator for property files and TOML.

All problems of an agent are found at once. What Flume ignores without harm (an option that it does
not know, a part that no list names) is a warning, because files that Flume runs shall run.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.settings.properties import Entry

from .description import (
    AgentDescription,
    ConfigError,
    GroupPart,
    Part,
    Problem,
    SinkPart,
    SourcePart,
)
from .parts import Keys, PartReader
from .promises import check_promises
from .schema import type_named
from .spelling import nearest
from .types import PartKind

LISTS = ("sources", "channels", "sinks", "sinkgroups")
FILTERS = "configfilters"


def agents_of(entries: Iterable[Entry]) -> list[str]:
    """The agents that a file describes, in its order."""
    found = (entry.name.split(".") for entry in entries)
    return list(dict.fromkeys(words[0] for words in found if words[1:2] and words[1] in LISTS))


def described(entries: list[Entry], agent: str) -> AgentDescription:
    """The description of one agent of the file. Raises ConfigError with all that is wrong."""
    return _Check(entries, agent).run()


class _Check:
    def __init__(self, entries: list[Entry], agent: str) -> None:
        self.agent = agent
        self.problems: list[Problem] = []
        self.description = AgentDescription(agent)
        self.reader = PartReader(self.problems, self.description.warnings)
        self.keys = Keys()
        self.first_line = ""
        for entry in entries:
            name = entry.name.strip()
            if name.startswith(f"{agent}."):
                self.keys.add(name[len(agent) + 1 :], entry._replace(name=name), self.warn)
                self.first_line = self.first_line or entry.where

    def warn(self, entry: Entry, rule: str, hint: str = "") -> None:
        self.description.warnings.append(Problem(entry.where, entry.name, rule, hint))

    def complain(self, entry: Entry, rule: str, hint: str, *, value: bool = True) -> None:
        got = entry.value.strip() if value else None
        self.problems.append(Problem(entry.where, entry.name, rule, hint, got))

    def run(self) -> AgentDescription:
        lists = {name: self._list(name) for name in LISTS}
        self._check_first_words()
        for name in lists["channels"]:
            self._channel(name)
        for name in lists["sources"]:
            self._source(name)
        for name in lists["sinks"]:
            self._sink(name)
        for name in lists["sinkgroups"]:
            self._group(name)
        self._check_whole(lists)
        if not self.problems:
            check_promises(self.description, self.problems)
        if self.problems:
            raise ConfigError(self.problems)
        return self.description

    # Names of parts.

    def _list(self, kind: str) -> list[str]:
        entry = self.keys.taken(kind)
        if entry is None:
            return []
        if "," in entry.value:
            rule = "must have spaces between the names, not commas"
            spaced = " ".join(entry.value.replace(",", " ").split())
            self.complain(entry, rule, f"{entry.name} = {spaced}")
        names = list(dict.fromkeys(entry.value.replace(",", " ").split()))
        under = self.keys.below(f"{kind}.").first_words()
        for name, first in under.items():
            if name not in names:
                rule = f"is ignored: {self.agent}.{kind} does not name {name}"
                self.warn(first, rule, f"{self.agent}.{kind} = {' '.join([*names, name])}")
        for name in names:
            self.keys.named[f"{kind}.{name}"] = entry
        return names

    def _check_first_words(self) -> None:
        for word, entry in self.keys.first_words().items():
            if word in LISTS:
                continue
            if word == FILTERS:
                rule = "cannot be honoured: values are not looked up by configuration filters here"
                self.complain(entry, rule, "${env:NAME} where the value stands", value=False)
                continue
            rest = entry.name[len(self.agent) + 1 + len(word) :]
            near = nearest(word, LISTS)
            hint = f"{self.agent}.{near}{rest}" if near else f"without {entry.name}"
            self.warn(entry, "is ignored: not a property of an agent", hint)

    # One part.

    def _channel(self, name: str) -> None:
        part = self._part(PartKind.CHANNEL, "channels", name)
        if part is not None:
            self.description.channels[name] = part

    def _part(self, kind: PartKind, group: str, name: str, also: Iterable[str] = ()) -> Part | None:
        keys = self.keys.below(f"{group}.{name}.")
        place = self.keys.named[f"{group}.{name}"]
        return self.reader.read(kind, name, f"{self.agent}.{group}.{name}", keys, place, also)

    def _source(self, name: str) -> None:
        prefix = f"{self.agent}.sources.{name}"
        keys = self.keys.below(f"sources.{name}.")
        channels = self._channels_of(name, prefix, keys)
        interceptors = self._interceptors(prefix, keys)
        selector = self._selector(prefix, keys, channels)
        part = self._part(
            PartKind.SOURCE, "sources", name, ("channels", "interceptors", "selector")
        )
        if part is not None and selector is not None:
            self.description.sources[name] = SourcePart(
                part.name, part.type, part.options, part.where, channels, selector, interceptors
            )

    def _channels_of(self, name: str, prefix: str, keys: Keys) -> tuple[str, ...]:
        entry = keys.taken("channels")
        if entry is None or not entry.value.strip():
            singular = keys.taken("channel")
            place = singular or self.keys.named[f"sources.{name}"]
            rule = "must be set: a source has channels"
            channel = singular.value.strip() if singular else self._some_channel()
            hint = f"{prefix}.channels = {channel}"
            self.problems.append(Problem(place.where, f"{prefix}.channels", rule, hint))
            return ()
        names = tuple(dict.fromkeys(entry.value.replace(",", " ").split()))
        for channel in names:
            if channel not in self._channel_names():
                self._no_such_channel(entry, channel)
        return names

    def _interceptors(self, prefix: str, keys: Keys) -> tuple[Part, ...]:
        entry = keys.taken("interceptors")
        found = []
        named = entry.value.split() if entry is not None else []
        for name, first in keys.below("interceptors.").first_words().items():
            if name not in named:
                rule = f"is ignored: {prefix}.interceptors does not name {name}"
                self.warn(first, rule, f"{prefix}.interceptors = {' '.join([*named, name])}")
        for name in named:
            own = keys.below(f"interceptors.{name}.")
            assert entry is not None
            part = self.reader.read(
                PartKind.INTERCEPTOR, name, f"{prefix}.interceptors.{name}", own, entry
            )
            if part is not None:
                found.append(part)
        return tuple(found)

    def _selector(self, prefix: str, keys: Keys, channels: tuple[str, ...]) -> Part | None:
        own = keys.below("selector.")
        place = next(iter(own.first_words().values()), None) or Entry(f"{prefix}.selector", "", "")
        part = self.reader.read(
            PartKind.SELECTOR, "selector", f"{prefix}.selector", own, place, default="replicating"
        )
        if part is None:
            return None
        lists: dict[str, Iterable[str]] = {}
        if part.type.name == "replicating":
            lists["optional"] = part.options.names("optional")
        if part.type.name == "multiplexing":
            lists["default"] = part.options.names("default")
            for family in ("mapping.", "optional."):
                for value, text in part.options.family(family).items():
                    lists[f"{family}{value}"] = text.split()
        for option, named in lists.items():
            for channel in named:
                if channel not in channels:
                    at = own.taken(option)
                    where = at.where if at is not None else part.where
                    rule = f"must name channels of the source ({', '.join(channels) or 'none'})"
                    hint = f"{prefix}.channels = {' '.join([*channels, channel])}"
                    key = f"{prefix}.selector.{option}"
                    self.problems.append(Problem(where, key, rule, hint, channel))
        return part

    def _sink(self, name: str) -> None:
        prefix = f"{self.agent}.sinks.{name}"
        keys = self.keys.below(f"sinks.{name}.")
        entry = keys.taken("channel")
        channel = entry.value.split() if entry is not None else []
        if not channel:
            plural = keys.taken("channels")
            place = plural or self.keys.named[f"sinks.{name}"]
            rule = "must be set: a sink takes from one channel"
            words = plural.value.split() if plural is not None else []
            hint = f"{prefix}.channel = {words[0] if words else self._some_channel()}"
            self.problems.append(Problem(place.where, f"{prefix}.channel", rule, hint))
        elif len(channel) > 1 or "," in channel[0]:
            assert entry is not None
            first = channel[0].split(",")[0]
            hint = f"{prefix}.channel = {first}, and another sink for each other channel"
            self.complain(entry, "must be one channel: a sink takes from one", hint)
        elif channel[0] not in self._channel_names():
            assert entry is not None
            self._no_such_channel(entry, channel[0])
        part = self._part(PartKind.SINK, "sinks", name, ("channel",))
        if part is not None and channel:
            self.description.sinks[name] = SinkPart(
                part.name, part.type, part.options, part.where, channel[0]
            )

    def _group(self, name: str) -> None:
        prefix = f"{self.agent}.sinkgroups.{name}"
        keys = self.keys.below(f"sinkgroups.{name}.")
        place = self.keys.named[f"sinkgroups.{name}"]
        entry = keys.taken("sinks")
        sinks = tuple(dict.fromkeys(entry.value.split())) if entry is not None else ()
        if entry is None or not sinks:
            rule = "must be set: the sinks of the group"
            hint = f"{prefix}.sinks = {' '.join(self.description.sinks) or 'k1 k2'}"
            self.problems.append(Problem(place.where, f"{prefix}.sinks", rule, hint))
        else:
            self._check_group_sinks(entry, name, sinks)
        own = keys.below("processor.")
        processor = self.reader.read(
            PartKind.PROCESSOR, name, f"{prefix}.processor", own, entry or place, default="default"
        )
        keys.mark_used("processor")
        self.reader.warn_of_unused(prefix, keys, ("sinks",))
        if processor is None or entry is None:
            return
        if processor.type.name == "default" and len(sinks) > 1:
            rule = "must be failover or load_balance: default is for one sink"
            hint = f"{prefix}.processor.type = failover"
            self.problems.append(Problem(processor.where, f"{prefix}.processor.type", rule, hint))
        self.description.groups[name] = GroupPart(name, sinks, processor, place.where)

    def _check_group_sinks(self, entry: Entry, name: str, sinks: tuple[str, ...]) -> None:
        named = [sink for sink in sinks if f"sinks.{sink}" in self.keys.named]
        for sink in sinks:
            if sink not in named:
                known = " ".join(key[6:] for key in self.keys.named if key.startswith("sinks."))
                rule = f"names {sink}, which is no sink of {self.agent}"
                self.complain(entry, rule, f"{entry.name} = {known}")
            for other in self.description.groups.values():
                if sink in other.sinks:
                    rule = f"names {sink}, which belongs to {other.name}: a sink is in one group"
                    self.complain(entry, rule, f"take {sink} out of {name} or {other.name}")
        channels = {
            self.description.sinks[sink].channel for sink in named if sink in self.description.sinks
        }
        if len(channels) > 1:
            rule = f"must be sinks of one channel, and they take from {', '.join(sorted(channels))}"
            self.complain(entry, rule, f"{self.agent}.sinks.{sinks[0]}.channel for all of them")

    # The whole.

    def _check_whole(self, lists: dict[str, list[str]]) -> None:
        """An agent has a channel, and what is put into one is taken out."""
        if not lists["channels"]:
            rule = "must be set: an agent has channels"
            hint = f"{self.agent}.channels = c1"
            self.problems.append(Problem(self.first_line, f"{self.agent}.channels", rule, hint))
        if not lists["sources"] and not lists["sinks"]:
            rule = "or sinks must be set: an agent of channels alone does nothing"
            hint = f"{self.agent}.sources = r1"
            self.problems.append(Problem(self.first_line, f"{self.agent}.sources", rule, hint))
        taken = {sink.channel for sink in self.description.sinks.values()}
        fed = {name for one in self.description.sources.values() for name in one.channels}
        for name, channel in self.description.channels.items():
            if channel.type.name == "kafka" or self.problems:
                continue
            entry = Entry(f"{self.agent}.channels.{name}", "", channel.where)
            if name not in taken:
                self.warn(entry, "has no sink: it fills, and then its sources wait")
            if name not in fed and type_named(PartKind.CHANNEL, "memory") is channel.type:
                self.warn(entry, "has no source: nothing comes out of it")

    def _channel_names(self) -> list[str]:
        return [key[9:] for key in self.keys.named if key.startswith("channels.")]

    def _some_channel(self) -> str:
        return next(iter(self._channel_names()), "c1")

    def _no_such_channel(self, entry: Entry, channel: str) -> None:
        known = self._channel_names()
        near = nearest(channel, known, cutoff=0.5)
        rule = f"names {channel}, which is no channel of {self.agent}"
        if near or len(known) == 1:
            hint = f"{entry.name} = {near or known[0]}"
        else:
            hint = f"{self.agent}.channels = {' '.join([*known, channel])}"
        self.complain(entry, rule, hint)
