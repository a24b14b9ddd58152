"""Mistakes in the keeping of a queue, planted into a simulated cluster.

Each gives a record to nobody, to two members, or again after it was done with. The producers and
readers of the topic notice none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.broker.shares.dead_letter_writer import DeadLetterWriter
from ottla.broker.shares.in_flight import InFlight
from ottla.broker.shares.persister import Persister
from ottla.broker.shares.ranges import ARCHIVED, AVAILABLE
from ottla.broker.shares.share_partition import SharePartition
from ottla.testing.simulation.run import Outcome
from ottla.testing.simulation.share_run import ShareRun
from ottla.wire.errors import ErrorCode
from tests.sim.transaction_mistakes import coordinator_answers_before_the_watermark

acquire = InFlight.acquire
durable_start = InFlight.durable_start
settle = InFlight._settle
write = Persister.write


def answered_before_it_is_written() -> AbstractContextManager[Any]:
    """An acknowledgement is answered when the leader has noted it: the next leader does not know
    it."""

    def changed(self: Persister, key: Any, change: Any, then: Callable[[Any], object]) -> None:
        write(self, key, change, lambda _: None)
        then(ErrorCode.NONE)

    return patch.object(Persister, "write", changed)


def start_beyond_what_is_held() -> AbstractContextManager[Any]:
    """The start offset passes what members hold at the time: who takes over gives it to nobody."""

    def changed(self: InFlight) -> int:
        held = [last for _, last, kind in self.runs() if kind.member]
        return max([durable_start(self), *(last + 1 for last in held[:1])])

    return patch.object(InFlight, "durable_start", changed)


def locks_without_end() -> AbstractContextManager[Any]:
    """Nobody looks when a lock has ended: who dies without a word keeps its records."""
    return patch.object(SharePartition, "_watch_locks", lambda self, delay_ms: None)


def locks_that_end_early() -> AbstractContextManager[Any]:
    """A lock ends after a tenth of its time: another member is given what is being processed."""

    def changed(self: InFlight, *arguments: Any, **options: Any) -> Any:
        limits = arguments[4]
        shorter = limits._replace(lock_ms=limits.lock_ms // 10)
        return acquire(self, *arguments[:4], shorter, *arguments[5:], **options)

    def watch(self: SharePartition, delay_ms: int) -> None:
        watch_locks(self, min(delay_ms, 100))

    watch_locks = SharePartition._watch_locks

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(InFlight, "acquire", changed),
            patch.object(SharePartition, "_watch_locks", watch),
        ):
            yield

    return both()


def released_is_forgotten() -> AbstractContextManager[Any]:
    """What a member gives back goes to nobody."""

    def changed(self: InFlight, first: int, last: int, wanted: Any, after: Any) -> None:
        def forgotten(kind: Any) -> int:
            state = after(kind)
            return ARCHIVED if state == AVAILABLE else int(state)

        settle(self, first, last, wanted, forgotten)

    return patch.object(InFlight, "_settle", changed)


def letters_that_are_not_written() -> AbstractContextManager[Any]:
    """What is to be a dead letter is done with as if it was one."""

    def changed(self: DeadLetterWriter, *arguments: Any) -> None:
        given_up, then = arguments[2], arguments[4]
        count = sum(each.last - each.first + 1 for each in given_up)
        self.broker.clock.call_later(0, then, count)

    return patch.object(DeadLetterWriter, "write", changed)


class QueueMistake(NamedTuple):
    """A mistake, the seeds within which it is found, and the kinds of faults that show it."""

    plant: Callable[[], AbstractContextManager[Any]]
    seeds: int
    kinds: tuple[str, ...]
    finding: str

    def run(self, seed: int) -> Outcome:
        """One run with the mistake planted."""
        with self.plant():
            return ShareRun(seed, ShareRun.draw_plan(seed, self.kinds)).run()


QUEUE_MISTAKES = [
    QueueMistake(answered_before_it_is_written, 5, ("kill", "slow"), "delivered-again"),
    QueueMistake(coordinator_answers_before_the_watermark, 5, ("move", "slow"), "delivered-again"),
    QueueMistake(start_beyond_what_is_held, 5, ("move", "kill"), "lost"),
    QueueMistake(locks_without_end, 3, ("move",), "the queue of"),
    QueueMistake(locks_that_end_early, 2, ("move",), "held-by-two"),
    QueueMistake(released_is_forgotten, 2, ("move",), "lost"),
    QueueMistake(letters_that_are_not_written, 3, ("move",), "no dead letter"),
]
