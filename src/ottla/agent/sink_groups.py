"""Sink groups: several sinks that are one to their channel.

`failover` delivers to the sink with the highest priority that works; `load_balance` to one after
the other, or to a random one. A sink that fails is left out for a while that doubles up to a limit.
Which sink is next is decided by `Choice` and its kinds, which are pure; `SinkGroup` tries them.
Delivery is at least once: a sink that failed may have delivered some of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

from .config.description import Part
from .events import EventBatch, Position
from .parts import Sink

logger = logging.getLogger(__name__)
PENALTY_MS = 1000  # Flume's, after the first failure; it doubles
DOUBLINGS_MAX = 16


class Choice(Protocol):
    def order(self, now_ms: float) -> list[str]:
        """The sinks to try, in order."""

    def failed(self, sink: str, now_ms: float) -> None: ...

    def delivered(self, sink: str) -> None: ...


class Penalties:
    """Which sinks are left out, and until when."""

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self._failures: dict[str, int] = {}
        self._until_ms: dict[str, float] = {}

    def add(self, sink: str, now_ms: float) -> None:
        failures = self._failures.get(sink, 0)
        self._failures[sink] = min(failures + 1, DOUBLINGS_MAX)
        self._until_ms[sink] = now_ms + min(PENALTY_MS * 2**failures, self.limit_ms)

    def clear(self, sink: str) -> None:
        self._failures.pop(sink, None)
        self._until_ms.pop(sink, None)

    def left_out(self, sink: str, now_ms: float) -> bool:
        return self._until_ms.get(sink, now_ms) > now_ms


class Failover:
    """The highest priority first; those left out come last, for there may be no other."""

    def __init__(self, priorities: Mapping[str, int], penalty_max_ms: int) -> None:
        self._sinks = sorted(priorities, key=lambda sink: -priorities[sink])
        self._penalties = Penalties(penalty_max_ms)

    def order(self, now_ms: float) -> list[str]:
        return [sink for sink in self._sinks if not self._penalties.left_out(sink, now_ms)]

    def failed(self, sink: str, now_ms: float) -> None:
        self._penalties.add(sink, now_ms)

    def delivered(self, sink: str) -> None:
        self._penalties.clear(sink)


class LoadBalance:
    """One after the other, or by chance; the others follow if it fails."""

    def __init__(
        self, sinks: Sequence[str], *, chance: Random | None, backoff_max_ms: int | None
    ) -> None:
        """`chance` None is round robin; `backoff_max_ms` None leaves no sink out."""
        self._sinks = list(sinks)
        self._chance = chance
        self._penalties = None if backoff_max_ms is None else Penalties(backoff_max_ms)
        self._next = 0

    def order(self, now_ms: float) -> list[str]:
        if self._chance is not None:
            sinks = self._chance.sample(self._sinks, len(self._sinks))
        else:
            at = self._next % len(self._sinks)
            self._next += 1
            sinks = self._sinks[at:] + self._sinks[:at]
        if self._penalties is None:
            return sinks
        return [sink for sink in sinks if not self._penalties.left_out(sink, now_ms)]

    def failed(self, sink: str, now_ms: float) -> None:
        if self._penalties is not None:
            self._penalties.add(sink, now_ms)

    def delivered(self, sink: str) -> None:
        if self._penalties is not None:
            self._penalties.clear(sink)


class AllSinksFailed(RuntimeError):
    """No sink of the group has delivered."""

    retriable = True


class SinkGroup:
    """A sink made of sinks."""

    keeps_positions = False

    def __init__(
        self,
        name: str,
        sinks: Mapping[str, Sink],
        choice: Choice,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.counts = dict.fromkeys(sinks, 0)  # events delivered by each
        self.failures = dict.fromkeys(sinks, 0)
        self._sinks = sinks
        self._choice = choice
        self._clock = clock
        self._started: set[str] = set()

    def start(self) -> Mapping[str, Position]:
        """A sink that does not start is one that failed: it is tried again with a delivery."""
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        problems = []
        for name in self._choice.order(self._clock() * 1000):
            try:
                if name not in self._started:
                    self._sinks[name].start()
                    self._started.add(name)
                self._sinks[name].deliver(batches)
            except Exception as problem:
                logger.warning("Sink group %s: %s failed: %s", self.name, name, problem)
                problems.append(f"{name}: {problem}")
                self.failures[name] += 1
                # It begins anew: its producer may have failed for good, and what it encoded of
                # this delivery is another sink's now.
                self._started.discard(name)
                self._choice.failed(name, self._clock() * 1000)
                continue
            self._choice.delivered(name)
            self.counts[name] += sum(map(len, batches))
            return
        raise AllSinksFailed("; ".join(problems) or "all its sinks are left out for now")

    def stop(self) -> None:
        for sink in self._sinks.values():
            sink.stop()


def group_of(name: str, processor: Part, sinks: Mapping[str, Sink]) -> SinkGroup:
    """The group that a sink processor's options describe."""
    options = processor.options
    choice: Choice
    if processor.type.name == "failover":
        given = options.family("priority.")
        priorities = {sink: int(given[sink]) for sink in sinks if sink in given}
        choice = Failover(priorities, options.number("maxpenalty"))
    else:
        choice = LoadBalance(
            list(sinks),
            chance=Random() if options.text("selector") == "random" else None,
            backoff_max_ms=(
                options.number("selector.maxTimeOut") if options.flag("backoff") else None
            ),
        )
    return SinkGroup(name, sinks, choice)
