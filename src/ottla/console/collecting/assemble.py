"""From what is known to the picture that pages show: pure, and cheap for what has not changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ottla.client.structs import TopicPartition

from ..picture import (
    BrokerPicture,
    ClusterPicture,
    GroupPicture,
    LagPicture,
    PartitionPicture,
    ReassignmentPicture,
    TopicPicture,
)
from .endpoints import BrokerFigures, TopicFigures
from .known import Known, KnownGroup, KnownPartition, KnownTopic

LagTime = Callable[[TopicPartition, int, int], int | None]  # partition, committed, end
NO_FIGURES = TopicFigures()


class Figures(NamedTuple):
    """What moves: from the rates of offsets and sizes, and from endpoints where there are any."""

    records_in: Mapping[TopicPartition, float]
    bytes_in: Mapping[TopicPartition, float]  # by the growth of logs
    topics: Mapping[str, TopicFigures]
    brokers: Mapping[int, BrokerFigures]


def picture_of(name: str, known: Known, figures: Figures, lag_ms: LagTime) -> ClusterPicture:
    topics = {
        each.name: topic_picture(each, known, figures)
        for each in sorted(known.topics.values(), key=lambda each: each.name)
    }
    brokers = broker_pictures(known, figures)
    return ClusterPicture(
        name=name,
        taken_ms=known.answered_ms,
        cluster_id=known.cluster_id,
        controller_id=known.controller_id,
        software=software_of(known, brokers),
        brokers=brokers,
        topics=topics,
        groups={
            each.group_id: group_picture(each, known, lag_ms)
            for each in sorted(known.groups.values(), key=lambda each: each.group_id)
        },
        transactions=known.transactions,
        reassignments=tuple(with_progress(each, known) for each in known.reassignments),
        pipelines=known.pipelines,
        problems=known.problems.all(),
        bytes_in_rate=total(
            [each.bytes_in_rate for each in brokers],
            [each.bytes_in_rate for each in topics.values()],
        ),
        bytes_out_rate=total([each.bytes_out_rate for each in brokers]),
        records_in_rate=total([each.records_in_rate for each in topics.values()]),
    )


def with_progress(each: ReassignmentPicture, known: Known) -> ReassignmentPicture:
    """With what was copied to the brokers that are added, of the leader's size for each."""
    where = TopicPartition(each.topic, each.partition)
    copied, leader = known.moving_sizes.get(where), known.leader_sizes.get(where)
    if copied is None or leader is None:
        return each
    return replace(
        each,
        copied_bytes=sum(min(leader, size) for size in copied.values()),
        wanted_bytes=leader * len(each.adding),
    )


def software_of(known: Known, brokers: tuple[BrokerPicture, ...]) -> str | None:
    """With the version where endpoints say it: the oldest, while brokers are being replaced."""
    versions = sorted(each.version for each in brokers if each.version)
    if known.software is None or not versions or known.software[-1].isdigit():
        return known.software
    return f"{known.software} {versions[0]}"


def total(*ways: list[float | None]) -> float | None:
    """The sum by the first way that knows anything."""
    for values in ways:
        found = [each for each in values if each is not None]
        if found:
            return sum(found)
    return None


def topic_picture(topic: KnownTopic, known: Known, figures: Figures) -> TopicPicture:
    name = topic.name
    records = 0
    records_in: float | None = None
    bytes_in: float | None = None
    partitions = []
    for each in topic.partitions:
        where = TopicPartition(name, each.partition)
        partition = partition_picture(each, where, known)
        partitions.append(partition)
        if partition.end_offset is not None:
            records += max(0, partition.end_offset - (partition.start_offset or 0))
        rate = figures.records_in.get(where)
        if rate is not None:
            records_in = rate + (records_in or 0.0)
        rate = figures.bytes_in.get(where)
        if rate is not None:
            bytes_in = rate + (bytes_in or 0.0)
    of_topic = figures.topics.get(name, NO_FIGURES)
    return TopicPicture(
        name=name,
        topic_id=topic.topic_id,
        internal=topic.internal,
        partitions=tuple(partitions),
        records=records,
        size_bytes=known.topic_sizes.get(name, 0),
        records_in_rate=records_in,
        bytes_in_rate=bytes_in if of_topic.bytes_in is None else of_topic.bytes_in,
        bytes_out_rate=of_topic.bytes_out,
    )


def partition_picture(
    part: KnownPartition, where: TopicPartition, known: Known
) -> PartitionPicture:
    return PartitionPicture(
        part.partition,
        part.leader,
        part.leader_epoch,
        part.replicas,
        part.isr,
        known.starts.get(where),
        known.ends.get(where),
        known.leader_sizes.get(where),
    )


def broker_pictures(known: Known, figures: Figures) -> tuple[BrokerPicture, ...]:
    replicas: Counter[int] = Counter()
    for topic in known.topics.values():
        for part in topic.partitions:
            replicas.update(part.replicas)
    found = []
    for node_id, broker in sorted(known.brokers.items()):
        own = figures.brokers.get(node_id, BrokerFigures())
        found.append(
            BrokerPicture(
                node_id=node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                controller=node_id == known.controller_id,
                up=broker.listed and broker.answers,
                version=own.version,
                leaders=len(known.by_leader.get(node_id, ())),
                replicas=replicas[node_id],
                log_dirs=broker.log_dirs,
                requests=own.requests,
                connections=own.connections,
                bytes_in_rate=own.bytes_in,
                bytes_out_rate=own.bytes_out,
                cpu_cores=own.cpu_cores,
                memory_bytes=own.memory_bytes,
                metrics_age_ms=own.age_ms,
            )
        )
    return tuple(found)


def group_picture(group: KnownGroup, known: Known, lag_ms: LagTime) -> GroupPicture:
    readers: dict[TopicPartition, list[str]] = defaultdict(list)
    for member in group.members:
        for part in member.assigned:
            readers[TopicPartition(*part)].append(member.member_id)
    lags = []
    for where in sorted(readers.keys() | group.committed.keys()):
        committed = group.committed.get(where)
        end = known.ends.get(where)
        lag = time = None
        if committed is not None and end is not None:
            lag = group.share_lags.get(where, max(0, end - committed.offset))
            time = lag_ms(where, committed.offset, end) if lag else 0
        lags.append(
            LagPicture(
                topic=where.topic,
                partition=where.partition,
                committed=None if committed is None else committed.offset,
                lag=lag,
                lag_ms=time,
                member_id=readers[where][0] if where in readers else None,
                readers=len(readers.get(where, ())),
                metadata="" if committed is None else committed.metadata,
            )
        )
    counted = [each.lag for each in lags if each.lag is not None]
    return GroupPicture(
        group_id=group.group_id,
        kind=group.kind,
        state=group.state,
        protocol=group.protocol,
        coordinator=group.coordinator,
        members=group.members,
        lags=tuple(lags),
        lag=sum(counted) if counted else None,
        lag_ms=max((each.lag_ms for each in lags if each.lag_ms is not None), default=None),
    )
