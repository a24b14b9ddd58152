"""The values that rules compare, out of the newest picture of a cluster.

`Values(picture, now_ms)` is made once a round for all rules; `of(rule)` gives each subject that the
rule is about with its value, None where nobody knows it at the moment. A subject that does not
appear is not there (any more).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import cached_property, lru_cache

from ..collecting.samples import values_of
from ..picture import ClusterPicture
from ..series import Measure
from .rules import Rule, Watched

OLD_MS = 60_000  # an older picture says nothing of now
PATTERNS_MAX = 2048
Subject = tuple[str, str]  # as in a SeriesKey: subject, topic


class Values:
    def __init__(self, picture: ClusterPicture, now_ms: int) -> None:
        self.picture = picture
        self.age_ms = picture.age_ms(now_ms)
        self.known = self.age_ms is not None and self.age_ms <= OLD_MS

    @cached_property
    def _values(self) -> dict[str, dict[Subject, float | None]]:
        """By measure; worked out for the first rule that compares one."""
        found: dict[str, dict[Subject, float | None]] = {}
        for measure, subject, topic, value in values_of(self.picture):
            found.setdefault(measure, {})[subject, topic] = value
        return found

    def of(self, rule: Rule) -> Iterator[tuple[Subject, float | None]]:
        if rule.watch == Watched.CLUSTER_SILENT:
            yield ("", ""), None if self.age_ms is None else self.age_ms / 1000
            return
        subjects, topics = _compiled(rule.subjects), _compiled(rule.topics)
        for (subject, topic), value in self._all(rule):
            # No pattern of topics: the group as a whole, which has the topic "".
            if subjects.match(subject) and topics.match(topic) and bool(topic) == bool(rule.topics):
                yield (subject, topic), value if self.known else None

    def _all(self, rule: Rule) -> Iterator[tuple[Subject, float | None]]:
        if rule.watch == Watched.GROUP_STATE:
            wanted = {state.lower() for state in rule.states}
            for group in self.picture.groups.values():
                yield (group.group_id, ""), float(group.state.lower() in wanted)
        elif rule.watch == Watched.BROKER_DOWN:
            yield from self._not(Measure.BROKER_UP)
        elif rule.watch == Watched.PIPELINE_STOPPED:
            yield from self._not(Measure.PIPELINE_RUNNING)
        else:
            yield from self._values.get(rule.watch, {}).items()

    def _not(self, measure: Measure) -> Iterator[tuple[Subject, float | None]]:
        for subject, value in self._values.get(measure, {}).items():
            yield subject, None if value is None else float(not value)


@lru_cache(maxsize=PATTERNS_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
