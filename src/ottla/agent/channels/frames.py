"""The bytes of the file channel: a segment's header, and frames, each one batch with a checksum.

    segment  magic, channel id, first sequence number, the number behind what was there before it,
             checksum
    frame    magic, bytes behind this header, checksum of them;
             first sequence number, events, bytes of JSON; JSON, length of each body, the bodies

The JSON has the headers and the position of the source. Damage is found by the checksums, and the
next whole frame by its magic. Pure.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.client.codec.records import checksum

from ..events import EventBatch, Position

SEGMENT_MAGIC = b"OTTLACH1"
FRAME_MAGIC = b"\xf5OaF"  # no UTF-8 text has the first byte
segment_layout = struct.Struct("<8s16sQQ")
frame_layout = struct.Struct("<4sII")
inner_layout = struct.Struct("<QII")
checksum_layout = struct.Struct("<I")
SEGMENT_BYTES = segment_layout.size + checksum_layout.size
FRAME_HEAD_BYTES = frame_layout.size
ABOUT_OFFSET = FRAME_HEAD_BYTES + inner_layout.size  # of the JSON within a frame


class DamagedFrame(Exception):
    """The bytes are not the frame that was written."""


class SegmentHead(NamedTuple):
    channel: bytes  # 16 bytes
    first: int
    previous_end: int  # what lies between was lost before, and is counted


class Found(NamedTuple):
    """A whole frame in a segment."""

    at: int
    size: int
    first: int
    events: int

    @property
    def end(self) -> int:
        return self.first + span_of(self.events)


def span_of(events: int) -> int:
    """How many sequence numbers a batch takes: an empty one moves positions, and has one too."""
    return max(1, events)


def segment_head(head: SegmentHead) -> bytes:
    data = segment_layout.pack(SEGMENT_MAGIC, *head)
    return data + checksum_layout.pack(checksum(data))


def read_segment_head(data: bytes | memoryview) -> SegmentHead | None:
    """None if it is not whole."""
    if len(data) < SEGMENT_BYTES:
        return None
    magic, channel, first, previous_end = segment_layout.unpack_from(data)
    (found,) = checksum_layout.unpack_from(data, segment_layout.size)
    if magic != SEGMENT_MAGIC or checksum(data[: segment_layout.size]) != found:
        return None
    return SegmentHead(channel, first, previous_end)


def frame(batch: EventBatch, first: int) -> tuple[bytes, bytes]:
    """A batch as it is written: the header, and what is behind it."""
    about: dict[str, Any] = {}
    if batch.headers:
        about["headers"] = dict(batch.headers)
    if batch.own_headers is not None:
        about["own"] = [dict(own) for own in batch.own_headers]
    if batch.position is not None:
        stream, offset, facts = batch.position
        about["position"] = [stream, offset, dict(facts)]
    text = json.dumps(about).encode() if about else b""
    lengths = array("I", map(len, batch.bodies))
    if sys.byteorder == "big":
        lengths.byteswap()
    inner = inner_layout.pack(first, len(batch.bodies), len(text))
    behind = b"".join((inner, text, lengths.tobytes(), *batch.bodies))
    return frame_layout.pack(FRAME_MAGIC, len(behind), checksum(behind)), behind


def read_frame(data: bytes | memoryview) -> tuple[int, EventBatch]:
    """First sequence number and batch of one whole frame; the position is the source's."""
    if len(data) < FRAME_HEAD_BYTES:
        raise DamagedFrame("cut short")
    magic, size, expected = frame_layout.unpack_from(data)
    behind = memoryview(data)[FRAME_HEAD_BYTES:]
    if magic != FRAME_MAGIC or size != len(behind) or checksum(behind) != expected:
        raise DamagedFrame("the checksum does not match")
    first, events, text_bytes = inner_layout.unpack_from(behind)
    at = inner_layout.size
    about = json.loads(bytes(behind[at : at + text_bytes])) if text_bytes else {}
    at += text_bytes
    lengths = array("I")
    lengths.frombytes(behind[at : at + 4 * events])
    if sys.byteorder == "big":
        lengths.byteswap()
    at += 4 * events
    whole = bytes(behind[at:])
    bodies = []
    start = 0
    for length in lengths:
        end = start + length
        bodies.append(whole[start:end])
        start = end
    return first, EventBatch(bodies, about.get("headers", {}), about.get("own"), held(about))


def held(about: dict[str, Any]) -> Position | None:
    return Position(*about["position"]) if "position" in about else None


def about_bytes(begin: bytes) -> int:
    """How many bytes of JSON follow the first `ABOUT_OFFSET` bytes of a frame."""
    _, _, size = inner_layout.unpack_from(begin, FRAME_HEAD_BYTES)
    return int(size)


def position_in(text: bytes) -> Position | None:
    """The source's position in the JSON of a frame."""
    return held(json.loads(text)) if text else None


def scan(data: memoryview, start: int) -> Iterator[Found]:
    """The whole frames of a segment; what lies between them and behind them is damaged."""
    at = start
    end = len(data)
    while at + FRAME_HEAD_BYTES <= end:
        found = whole_frame(data, at)
        if found is not None:
            yield found
            at += found.size
            continue
        at = find_magic(data, at + 1)
        if at < 0:
            return


def whole_frame(data: memoryview, at: int) -> Found | None:
    """The frame at a place, if it is there and undamaged."""
    magic, size, expected = frame_layout.unpack_from(data, at)
    begin = at + FRAME_HEAD_BYTES
    if magic != FRAME_MAGIC or size < inner_layout.size or begin + size > len(data):
        return None
    if checksum(data[begin : begin + size]) != expected:
        return None
    first, events, _ = inner_layout.unpack_from(data, begin)
    return Found(at, FRAME_HEAD_BYTES + size, first, events)


def find_magic(data: memoryview, start: int) -> int:
    """The next place where a frame may begin, or -1."""
    step = 1 << 20
    for begin in range(start, len(data), step):
        found = bytes(data[begin : begin + step + len(FRAME_MAGIC) - 1]).find(FRAME_MAGIC)
        if found >= 0:
            place = begin + found
            return place if place + FRAME_HEAD_BYTES <= len(data) else -1
    return -1
