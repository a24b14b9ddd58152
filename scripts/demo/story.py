"""What the demo saw, for the panel while it runs and for the report afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """One look at everything, some times a second."""

    at_s: float
    sent: int
    # By the slowest pipeline: what all of them have counted.
    counted: int

    @property
    def lag(self) -> int:
        return max(self.sent - self.counted, 0)


@dataclass(frozen=True)
class Check:
    """One claim about the results, with what was expected and what was found."""

    claim: str
    expected: str
    found: str
    good: bool


@dataclass
class Story:
    """Everything the report tells."""

    seconds: float = 60.0
    master: str = "local[2]"
    samples: list[Sample] = field(default_factory=list)
    happenings: list[tuple[float, str]] = field(default_factory=list)
    brokers: int = 1
    broker_killed_at_s: float | None = None
    killed_at_s: float | None = None
    back_at_s: float | None = None
    caught_up_at_s: float | None = None
    checks: list[Check] = field(default_factory=list)
    pages: Sequence[tuple[str, int]] = ()
    # (minute of the day, page) → views
    views: dict[tuple[str, str], int] = field(default_factory=dict)
    funnel: Sequence[tuple[str, int]] = ()
    # Figures and their names, for the top of the page.
    figures: list[tuple[str, str]] = field(default_factory=list)
    # The pipelines' files: name and text.
    code: list[tuple[str, str]] = field(default_factory=list)
    command: str = ""

    @property
    def good(self) -> bool:
        return bool(self.checks) and all(check.good for check in self.checks)


def rates(samples: Sequence[Sample], over_s: float = 2.0) -> list[tuple[float, float, float]]:
    """(time, sent per second, counted per second), each over the last `over_s` seconds."""
    found = []
    begin = 0
    for sample in samples:
        while samples[begin].at_s < sample.at_s - over_s:
            begin += 1
        first = samples[begin]
        passed = sample.at_s - first.at_s
        if passed > 0:
            found.append(
                (
                    sample.at_s,
                    (sample.sent - first.sent) / passed,
                    max(sample.counted - first.counted, 0) / passed,
                )
            )
    return found


def thinned(samples: Sequence[Sample], every_s: float) -> list[Sample]:
    """At most one sample in each stretch of `every_s` seconds, and the last."""
    kept: list[Sample] = []
    for sample in samples:
        if not kept or sample.at_s - kept[-1].at_s >= every_s:
            kept.append(sample)
    if samples and kept[-1] is not samples[-1]:
        kept.append(samples[-1])
    return kept
