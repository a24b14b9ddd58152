"""Golden frames of real clients and of Apache Kafka are read as they were meant.

So that two errors of ours cannot cancel out: these bytes were not written by us.
"""

from __future__ import annotations

import pytest

from ottla.wire.malformed import MalformedMessage
from tests.wire import vectors
from tests.wire.vectors import Vector

ALL = [vector for path in sorted(vectors.FOLDER.glob("*.txt")) for vector in vectors.load(path)]


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.title)
def test_frame_is_read_as_it_was_meant(vector: Vector) -> None:
    """The frame is read to its last byte, and says what is written beside it."""
    message, end = vector.read()
    assert end == len(vector.frame)
    assert vectors.describe(message, vector.version) == vector.meaning


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.title)
def test_frame_ends_where_it_ends(vector: Vector) -> None:
    """What follows the frame in the buffer is not touched."""
    message, end = vector.read(vector.frame + b"\xff\x00\x7f" * 30)
    assert end == len(vector.frame)
    assert vectors.describe(message, vector.version) == vector.meaning


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.title)
def test_every_proper_prefix_of_a_frame_is_refused(vector: Vector) -> None:
    """A frame that is cut short anywhere is refused."""
    view = memoryview(vector.frame)
    for size in range(len(view)):
        with pytest.raises(MalformedMessage):
            vector.read(view[:size])


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.title)
def test_frame_is_written_again_to_the_same_bytes(vector: Vector) -> None:
    """Our writing of the message is the sender's, byte for byte."""
    assert vector.written(vector.read()[0]) == vector.frame


def test_vectors_come_from_every_client() -> None:
    """Each client and Kafka itself are represented, in flexible and in old versions."""
    assert {path.stem for path in vectors.FOLDER.glob("*.txt")} == {
        "aiokafka", "apache_kafka", "confluent_kafka", "java", "kafka_python", "kcat",
    }  # fmt: skip
    flexible = {vector.version >= vector.api.flexible_from for vector in ALL}
    assert flexible == {True, False}
    assert len({vector.api.key for vector in ALL if vector.part == "request"}) >= 28
