"""What of a picture is kept over time."""

from __future__ import annotations

from collections.abc import Iterator

from ..picture import BrokerPicture, ClusterPicture, GroupPicture, TopicPicture
from ..series import Measure, Sample, SeriesKey

# A sum of end offsets says nothing that the rate of records does not; kept, it would cost as much.
NOT_KEPT = {Measure.TOPIC_END}
Value = tuple[Measure, str, str, float | None]  # measure, subject, topic


def samples_of(picture: ClusterPicture) -> list[Sample]:
    """One sample of each series that has a value now."""
    time_ms = picture.taken_ms
    if time_ms is None:
        return []
    name = picture.name
    return [
        Sample(SeriesKey(name, measure, subject, topic), time_ms, float(value))
        for measure, subject, topic, value in values_of(picture)
        if value is not None and measure not in NOT_KEPT
    ]


def values_of(picture: ClusterPicture) -> Iterator[Value]:
    yield Measure.CLUSTER_BYTES_IN, "", "", picture.bytes_in_rate
    yield Measure.CLUSTER_BYTES_OUT, "", "", picture.bytes_out_rate
    yield Measure.CLUSTER_RECORDS_IN, "", "", picture.records_in_rate
    yield Measure.CLUSTER_UNDER_REPLICATED, "", "", picture.under_replicated
    yield Measure.CLUSTER_OFFLINE, "", "", picture.offline
    yield Measure.CLUSTER_BROKERS_UP, "", "", sum(each.up for each in picture.brokers)
    for broker in picture.brokers:
        yield from of_broker(broker)
    for topic in picture.topics.values():
        yield from of_topic(topic)
    for group in picture.groups.values():
        yield from of_group(group)
    for pipeline in picture.pipelines:
        yield Measure.PIPELINE_ROWS, pipeline.name, "", pipeline.rows_rate
        yield Measure.PIPELINE_LAG, pipeline.name, "", pipeline.lag
        yield Measure.PIPELINE_BATCH_MS, pipeline.name, "", pipeline.batch_ms
        yield Measure.PIPELINE_RUNNING, pipeline.name, "", pipeline.state == "running"


def of_broker(broker: BrokerPicture) -> Iterator[Value]:
    subject = str(broker.node_id)
    yield Measure.BROKER_UP, subject, "", broker.up
    yield Measure.BROKER_BYTES_IN, subject, "", broker.bytes_in_rate
    yield Measure.BROKER_BYTES_OUT, subject, "", broker.bytes_out_rate
    if broker.requests:
        yield Measure.BROKER_REQUESTS, subject, "", sum(each.rate for each in broker.requests)
    for each in broker.requests:
        if each.api == "Produce":
            yield Measure.BROKER_PRODUCE_P99_MS, subject, "", each.p99_ms
        elif each.api == "Fetch":
            yield Measure.BROKER_FETCH_P99_MS, subject, "", each.p99_ms
    yield Measure.BROKER_CONNECTIONS, subject, "", broker.connections
    yield Measure.BROKER_CPU, subject, "", broker.cpu_cores
    yield Measure.BROKER_MEMORY, subject, "", broker.memory_bytes
    yield Measure.BROKER_DISK_USED, subject, "", disk_used(broker)


def disk_used(broker: BrokerPicture) -> float | None:
    """The share that is used of the fullest log directory's volume."""
    return max(
        (
            1 - each.usable_bytes / each.total_bytes
            for each in broker.log_dirs
            if each.usable_bytes is not None and each.total_bytes
        ),
        default=None,
    )


def of_topic(topic: TopicPicture) -> Iterator[Value]:
    name = topic.name
    yield Measure.TOPIC_RECORDS_IN, name, "", topic.records_in_rate
    yield Measure.TOPIC_BYTES_IN, name, "", topic.bytes_in_rate
    yield Measure.TOPIC_BYTES_OUT, name, "", topic.bytes_out_rate
    yield Measure.TOPIC_SIZE, name, "", topic.size_bytes
    ends = [each.end_offset for each in topic.partitions]
    if None not in ends:
        yield Measure.TOPIC_END, name, "", sum(each for each in ends if each is not None)


def of_group(group: GroupPicture) -> Iterator[Value]:
    """Of the group, and of each of its topics."""
    name = group.group_id
    yield Measure.GROUP_LAG, name, "", group.lag
    yield Measure.GROUP_LAG_MS, name, "", group.lag_ms
    yield Measure.GROUP_MEMBERS, name, "", len(group.members)
    lags: dict[str, int] = {}
    times: dict[str, int] = {}
    for each in group.lags:
        if each.lag is not None:
            lags[each.topic] = lags.get(each.topic, 0) + each.lag
        if each.lag_ms is not None:
            times[each.topic] = max(times.get(each.topic, 0), each.lag_ms)
    for topic, lag in lags.items():
        yield Measure.GROUP_LAG, name, topic, lag
        yield Measure.GROUP_LAG_MS, name, topic, times.get(topic)
