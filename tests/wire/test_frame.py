"""Frames out of a stream that comes in pieces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.frame import FRAME_BYTES_MAX, FrameBuffer, frame_size
from ottla.wire.malformed import MalformedMessage


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_frames_come_out_as_they_went_in(frames: list[bytes], data: st.DataObject) -> None:
    """However the stream is cut into pieces, the frames are the same, in order."""
    stream = b"".join(map(framed, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    buffer = FrameBuffer()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [bytes(frame) for frame in buffer.received(stream[start:end])]
    assert found == frames
    assert buffer.pending_bytes == 0


def test_byte_by_byte() -> None:
    """A frame is given with its last byte, not before."""
    buffer = FrameBuffer()
    stream = framed(b"hello")
    for byte in stream[:-1]:
        assert list(buffer.received(bytes([byte]))) == []
    assert buffer.pending_bytes == len(stream) - 1
    assert [bytes(frame) for frame in buffer.received(stream[-1:])] == [b"hello"]


def test_a_frame_stays_good_while_more_comes_in() -> None:
    """A view that is kept is not changed, and does not keep the stream from going on."""
    buffer = FrameBuffer()
    (kept,) = buffer.received(framed(b"one") + framed(b"two")[:5])
    (later,) = buffer.received(framed(b"two")[5:])
    assert (bytes(kept), bytes(later)) == (b"one", b"two")


def test_frames_before_a_bad_one_are_given() -> None:
    """What came whole is served; only then is the bad size refused."""
    frames = FrameBuffer(limit=10).received(framed(b"good") + framed(b"x" * 11))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(MalformedMessage, match="frame of 11 bytes"):
        next(frames)


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_that_is_not_allowed_is_refused_at_its_fourth_byte(size: int) -> None:
    """Negative or above the limit: refused before a single byte of the frame has come."""
    buffer = FrameBuffer(limit=1000)
    head = struct.pack(">i", size)
    assert list(buffer.received(head[:3])) == []
    with pytest.raises(MalformedMessage, match=f"frame of {size} bytes"):
        list(buffer.received(head[3:]))


def test_the_limit_itself_is_allowed() -> None:
    """As many bytes as the limit make a frame; the default limit is Kafka's."""
    assert frame_size(struct.pack(">i", FRAME_BYTES_MAX), 0) == 100 * 1024 * 1024
    with pytest.raises(MalformedMessage):
        frame_size(struct.pack(">i", FRAME_BYTES_MAX + 1), 0)
