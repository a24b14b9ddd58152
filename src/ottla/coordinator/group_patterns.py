"""The topic patterns of consumer groups: when they are resolved, and what follows (KIP-848).

A member says a pattern, the coordinator finds the topics that it matches and keeps them in a
record. All patterns of a group are resolved together: when one is new, when topics have been
created, and from time to time; at most once in ten seconds. That takes patterns x topics matches,
which are made in slices between requests, and the group's epoch rises if the result is another.
Topics that may not be described by the member whose heartbeat began it are left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember, ResolvedPattern, add
from ottla.coordinator.consumer_group_records import epoch_record, pattern_record
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.new_group import Refused
from ottla.coordinator.patterns import Pattern, PatternError
from ottla.coordinator.topics import TopicsView
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.coordinator")

PATTERNS = "consumer-patterns"
# A group's patterns are resolved again after this time at the earliest.
REFRESH_PAUSE_MS = 10_000
# Names that are matched with a pattern, or asked for, in one turn of the loop.
SLICE_MATCHES = 500

# Those of the names that a member may describe; a name is there once for each pattern it matches.
Describable = Callable[[Iterable[str]], Collection[str]]


class PatternChange(NamedTuple):
    """What a heartbeat says about its member's pattern."""

    changed: bool
    resolved: bool  # it is another one, of which the topics are known, or it has none any more


class Resolution:
    """The patterns of one group, being resolved over the topics of one image."""

    def __init__(
        self,
        patterns: list[str],
        names: list[str],
        version: int,
        now_ms: int,
        describable: Describable | None,
    ) -> None:
        """`describable`: None where every member may describe all topics."""
        self.version = version
        self.started_ms = now_ms
        self.found: dict[str, ResolvedPattern] = {}
        self._describable = describable
        self._slices = self._run(patterns, names)

    def advance(self) -> bool:
        """One slice of the work; whether there is more."""
        return next(self._slices, None) is not None

    def _run(self, patterns: list[str], names: list[str]) -> Iterator[bool]:
        left = SLICE_MATCHES
        found: dict[str, set[str]] = {}
        for text in patterns:
            matched = found[text] = set()
            try:
                pattern = Pattern(text)
                for name in names:
                    if pattern.matches(name):
                        matched.add(name)
                    left -= 1
                    if left <= 0:
                        yield True
                        left = SLICE_MATCHES
            except PatternError as problem:
                log.warning("a consumer group's pattern %r matches no topic: %s", text, problem)
                matched.clear()
        hidden: set[str] = set()
        if self._describable is not None:
            counts = Counter(chain.from_iterable(found.values()))
            unasked = iter(counts)
            while some := list(islice(unasked, SLICE_MATCHES)):
                named = chain.from_iterable([name] * counts[name] for name in some)
                hidden.update(set(some).difference(self._describable(named)))
                yield True
        for text, matched in found.items():
            topics = frozenset(matched - hidden)
            self.found[text] = ResolvedPattern(topics, self.version, self.started_ms)


class GroupPatterns:
    """The patterns of all consumer groups of a shard."""

    def __init__(
        self,
        get: Callable[[str], ConsumerGroup | None],
        options: GroupOptions,
        topics: TopicsView,
    ) -> None:
        self._get = get
        self._options = options
        self._topics = topics
        self._under_way: dict[str, Resolution] = {}

    def update(
        self,
        group: ConsumerGroup,
        old: ConsumerMember,
        new: ConsumerMember,
        effects: Effects,
        now_ms: int,
        describable: Describable | None,
    ) -> PatternChange:
        """A member has sent a heartbeat: begin to resolve the group's patterns if it is time.

        `describable`: which topics the member may describe; None: all.
        """
        before, after = old.pattern or "", new.pattern or ""
        changed = (old.pattern or None) != (new.pattern or None)
        resolved = is_new = False
        if changed:
            if before and group.pattern_counts[before] == 1:
                effects.records.append(pattern_record(group.group_id, before, None))
            if after and not group.pattern_counts[after]:
                check(after)
                is_new = True
            else:
                resolved = not after or after in group.patterns
        if is_new or group.pattern_counts:
            counts = group.pattern_counts
            if changed:
                counts = counts.copy()
                add(counts, (before,) if before else (), -1)
                add(counts, (after,) if after else (), 1)
            if counts and self._is_time(group, list(counts), is_new, now_ms):
                self._begin(group.group_id, list(counts), effects, now_ms, describable)
        return PatternChange(changed, resolved)

    def _is_time(
        self, group: ConsumerGroup, patterns: list[str], is_new: bool, now_ms: int
    ) -> bool:
        if group.group_id in self._under_way:
            return False
        known = group.patterns.values()
        last_ms = max((each.timestamp_ms for each in known), default=0)
        if now_ms <= last_ms + REFRESH_PAUSE_MS:
            return False
        if is_new or len(patterns) != len(known):
            return True
        version = min(each.version for each in known)
        # A version beyond the image's is of another cluster, whose directory was adopted.
        if version < self._topics.newest_creation or version > self._topics.image.number:
            return True
        interval_ms = self._options.broker("group.consumer.regex.refresh.interval.ms")
        return now_ms > last_ms + interval_ms

    def _begin(
        self,
        group_id: str,
        patterns: list[str],
        effects: Effects,
        now_ms: int,
        describable: Describable | None,
    ) -> None:
        image = self._topics.image
        names = sorted(image.topics)
        resolution = Resolution(patterns, names, image.number, now_ms, describable)
        self._under_way[group_id] = resolution
        effects.set_timer((group_id, PATTERNS), 0)

    def due(self, group_id: str, effects: Effects) -> None:
        """The next slice; after the last one the records of what has been found."""
        resolution = self._under_way.get(group_id)
        if resolution is None:
            return
        if resolution.advance():
            effects.set_timer((group_id, PATTERNS), 0)
            return
        del self._under_way[group_id]
        group = self._get(group_id)
        if group is not None:
            self._finish(group, resolution, effects)

    def _finish(self, group: ConsumerGroup, resolution: Resolution, effects: Effects) -> None:
        changed = False
        matches = group.match_counts.copy()
        for pattern, resolved in resolution.found.items():
            if pattern not in group.pattern_counts:
                continue  # nobody subscribes to it any more
            before = group.patterns.get(pattern)
            old_topics = frozenset[str]() if before is None else before.topics
            if old_topics != resolved.topics:
                changed = True
                add(matches, old_topics, -1)
                add(matches, resolved.topics, 1)
            effects.records.append(pattern_record(group.group_id, pattern, resolved))
        hashed = self._topics.group_hash({*group.name_counts, *matches})
        if changed or hashed != group.metadata_hash:
            effects.records.append(epoch_record(group.group_id, group.epoch + 1, hashed))


def check(pattern: str) -> None:
    try:
        Pattern(pattern)
    except PatternError as problem:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {problem}.",
        ) from problem
