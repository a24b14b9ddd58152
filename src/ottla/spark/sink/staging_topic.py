"""The staging topic of a sink: where tasks leave rows that the driver cannot reach by file.

It is made on demand, keeps records for a day, and is emptied after each commit. Tasks write to it
without a transaction; the offsets of a task's own batches are in its parcel, so what losing
attempts wrote is never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ottla.client import errors
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.raw_producer import BatchFuture, RawProducer
from ottla.client.structs import TopicPartition

from ..broker_wait import common, repeated
from .connections import plain_producer, settled
from .parcels import Origin, Parcel, ParcelLost, Slice
from .rows import Piece

PARTITIONS = 4
CONFIGS = {
    "retention.ms": str(24 * 3600 * 1000),
    "cleanup.policy": "delete",
    # Batches must come back as they went in.
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}


def topic_name(sink: str) -> str:
    """Of a sink's staging topic."""
    return f"__{sink}"


class StagingTopic:
    """A task's way into the staging topic."""

    def __init__(self, properties: Mapping[str, Any], origin: Origin) -> None:
        self.name = topic_name(origin.sink)
        self.partition = origin.task % PARTITIONS
        # As long as for a broker at the start of a connection; see SinkOptions.patient.
        timeout_s = float(properties.get("bootstrap.timeout.ms", 0)) / 1000
        repeated(lambda: create(properties, self.name), timeout_s)
        self._producer = plain_producer(properties)
        self._futures: list[BatchFuture] = []

    def send(self, piece: Piece) -> None:
        future = self._producer.send_batch(self.name, self.partition, piece.data, piece.records)
        self._futures.append(future)

    def finish(self, slices: list[Slice]) -> tuple[list[Slice], list[tuple[int, int]]]:
        """When all are acknowledged: the slices of the parcel as they are stored, and partition and
        offset of each. A batch that the topic took only in parts is as many slices."""
        stored, places = [], []
        for whole, parts in zip(slices, settled(self._producer, self._futures), strict=True):
            topic, partition, size, records = whole
            for offset, count in parts:
                # Sizes of parts are not known; their sum counts.
                stored.append((topic, partition, size * count // records, count))
                places.append((self.partition, offset))
        return stored, places


def fetch_pieces(parcel: Parcel, producer: RawProducer) -> Iterator[Piece]:
    """The batches of a parcel, read back as they are."""
    assert parcel.staging_topic is not None
    if not parcel.places:
        return
    partition = parcel.places[0][0]
    offsets = [offset for _, offset in parcel.places]
    found = producer.read_batches(parcel.staging_topic, partition, offsets)
    try:
        for data, (topic, target, _, records) in zip(found, parcel.slices, strict=True):
            yield Piece(topic, target, data, records)
    except (errors.OffsetOutOfRangeError, errors.UnknownTopicOrPartitionError) as problem:
        raise ParcelLost(
            f"the rows of task {parcel.origin.task} are gone from {parcel.staging_topic}: {problem}"
        ) from problem


def admin(properties: Mapping[str, Any]) -> Admin:
    """An admin client for the producer's cluster."""
    return Admin(common(properties))


def create(properties: Mapping[str, Any], name: str) -> None:
    """Make the topic unless it is there."""
    with admin(properties) as client, suppress(errors.TopicAlreadyExistsError):
        client.create_topics([NewTopic(name, PARTITIONS, -1, topic_configs=CONFIGS)])


def empty(properties: Mapping[str, Any], parcels: list[Parcel]) -> None:
    """Delete what these parcels have in the staging topic, and all that is older."""
    ends: dict[TopicPartition, int] = {}
    for parcel in parcels:
        if parcel.staging_topic is None:
            continue
        for (partition, offset), (_, _, _, records) in zip(
            parcel.places, parcel.slices, strict=True
        ):
            place = TopicPartition(parcel.staging_topic, partition)
            ends[place] = max(ends.get(place, 0), offset + records)
    if ends:
        with admin(properties) as client:
            client.delete_records(ends)


def delete(properties: Mapping[str, Any], name: str) -> None:
    """Delete the topic of a sink that will not write again."""
    with admin(properties) as client, suppress(errors.UnknownTopicOrPartitionError):
        client.delete_topics([name])
