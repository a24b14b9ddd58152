"""Operations of the purgatory that wait for an offset of one key, the lowest first.

An acknowledgement waits for the high watermark of a partition to pass its records, as long as the
leader that appended them leads. So an advance looks only at what it completes, and an append that
completes nothing at no operation at all. A change of the key's term concerns all that wait.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replica.purgatory import DelayedOperation

# Operations that were completed or cancelled otherwise are kept, up to so many more than there are
# others: taking one out of the middle would cost as much as there are.
GONE_MAX = 64


class Ordered(Protocol):
    """A key whose operations wait for offsets."""

    @property
    def standing(self) -> tuple[int, int]:
        """Its term, and the offset that it has reached in it."""

    def __hash__(self) -> int: ...


class OffsetWaits:
    """What waits for one key."""

    __slots__ = ("_gone", "_heap", "_number", "_term")

    def __init__(self, term: int) -> None:
        self._term = term
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._number = 0  # those of one offset are tried in the order in which they came
        self._gone = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, operation: DelayedOperation) -> None:
        """Let an operation wait for an offset."""
        self._number += 1
        heappush(self._heap, (offset, self._number, operation))

    def has_due(self, standing: tuple[int, int]) -> bool:
        """Whether `take` would return any."""
        term, offset = standing
        return bool(self._heap) and (term != self._term or self._heap[0][0] <= offset)

    def take(self, standing: tuple[int, int]) -> list[DelayedOperation]:
        """Those that the key has reached, or all if its term is another; they wait no longer."""
        term, offset = standing
        taken = []
        heap = self._heap
        while heap and (term != self._term or heap[0][0] <= offset):
            operation = heappop(heap)[2]
            if operation.attempt is None:
                self._gone -= 1
            else:
                taken.append(operation)
        self._term = term
        return taken

    def forget_one(self) -> None:
        """One of the operations is over, and may still be here."""
        self._gone += 1
        if 2 * self._gone > len(self._heap) + GONE_MAX:
            self._heap = [each for each in self._heap if each[2].attempt is not None]
            heapify(self._heap)
            self._gone = 0
