"""Events: the unit that travels is a batch of them, all of one stream.

A stream is what a source can read again from a position: a file, a partition, the sequence of a
durable channel. Batches of a stream are in order and do not overlap. An event whose source cannot
read it again has no position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

NO_HEADERS: Mapping[str, str] = {}
GROUP_FACT = "group"  # of a position: the consumer group that its offset is committed for
FORGET = -1  # the offset of a stream that will not come back: sinks forget its position


class Position(NamedTuple):
    """Where a stream continues: `offset` says how far, `facts` how its source finds it again."""

    stream: str  # "SOURCE/…", unique within an agent and the same after a restart
    offset: int
    facts: Mapping[str, object] = NO_HEADERS  # what JSON can hold


def is_of_group(position: Position | None) -> bool:
    """Whether a consumer group keeps the position: nobody else does (see group_offsets.py)."""
    return position is not None and GROUP_FACT in position.facts


def bytes_of(text: str) -> bytes:
    """A header as bytes. Bytes that are no UTF-8 and became a header (a file's name, what a pattern
    found) are what they were; half a surrogate pair, which JSON can have, is `?` as in Java."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


@dataclass(slots=True)
class EventBatch:
    """Events in order. A batch whose events were all filtered still moves the position."""

    bodies: list[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)  # of all of them
    # Headers of single events, beyond or instead of those of all.
    own_headers: list[Mapping[str, str]] | None = None
    position: Position | None = None  # behind the last event
    ends: Sequence[int] = ()  # the offset behind each event, where there is a position
    # Behind a durable channel `position` is the channel's, and this is where the source was.
    source_position: Position | None = None
    _byte_count: int = field(default=-1, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.bodies)

    def byte_count(self) -> int:
        """Of the bodies; asked for by each part on the way, so it is counted once."""
        if self._byte_count < 0:
            self._byte_count = sum(map(len, self.bodies))
        return self._byte_count

    def headers_of(self, index: int) -> Mapping[str, str]:
        """The headers of one event."""
        if self.own_headers is None or not (own := self.own_headers[index]):
            return self.headers
        return {**self.headers, **own} if self.headers else own

    def part(self, indexes: Sequence[int]) -> EventBatch:
        """These events alone; the position stays, so that a sink gets past those left out."""
        return replace(
            self,
            bodies=[self.bodies[index] for index in indexes],
            own_headers=self.own_headers and [self.own_headers[index] for index in indexes],
            ends=[self.ends[index] for index in indexes] if self.ends else (),
        )

    def beyond(self, offset: int) -> EventBatch | None:
        """What lies behind an offset of the stream; None if all was delivered before."""
        if self.position is None or offset < 0 or self.position.offset == FORGET:
            return self
        if self.position.offset <= offset:
            return None
        first = bisect_right(self.ends, offset)
        return self if first == 0 else self.part(range(first, len(self)))
