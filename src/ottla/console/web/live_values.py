"""The numbers of a picture that change while a page is shown, by the subjects that pages name.

A subject is `""` (the cluster), `broker:1`, `topic:orders`, `partition:3:orders` (of a topic),
`group:web`, `lag:3:orders:web` (what a group lacks of a partition) or `pipeline:counts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..picture import ClusterPicture

Values = dict[str, Any]


def values_of(picture: ClusterPicture, subject: str) -> Values | None:
    """None where the picture has no such thing."""
    kind, _, name = subject.partition(":")
    found = KINDS.get(kind)
    return None if found is None else found(picture, name)


def _cluster(picture: ClusterPicture, name: str) -> Values:
    return {
        "brokers": f"{sum(each.up for each in picture.brokers)} / {len(picture.brokers)}",
        "bytes_in_rate": picture.bytes_in_rate,
        "bytes_out_rate": picture.bytes_out_rate,
        "records_in_rate": picture.records_in_rate,
        "under_replicated": picture.under_replicated,
        "offline": picture.offline,
        "topics": len(picture.topics),
        "groups": len(picture.groups),
    }


def _broker(picture: ClusterPicture, name: str) -> Values | None:
    for each in picture.brokers:
        if str(each.node_id) == name:
            return {
                "leaders": each.leaders,
                "replicas": each.replicas,
                "bytes_in_rate": each.bytes_in_rate,
                "bytes_out_rate": each.bytes_out_rate,
                "connections": each.connections,
                "cpu_cores": each.cpu_cores,
                "memory_bytes": each.memory_bytes,
            }
    return None


def _topic(picture: ClusterPicture, name: str) -> Values | None:
    topic = picture.topics.get(name)
    if topic is None:
        return None
    return {
        "records": topic.records,
        "size_bytes": topic.size_bytes,
        "records_in_rate": topic.records_in_rate,
        "bytes_in_rate": topic.bytes_in_rate,
        "bytes_out_rate": topic.bytes_out_rate,
    }


def _partition(picture: ClusterPicture, name: str) -> Values | None:
    number, _, topic_name = name.partition(":")
    topic = picture.topics.get(topic_name)
    for each in topic.partitions if topic else ():
        if str(each.partition) == number:
            start, end = each.start_offset, each.end_offset
            return {
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
                "size_bytes": each.size_bytes,
            }
    return None


def _group(picture: ClusterPicture, name: str) -> Values | None:
    group = picture.groups.get(name)
    if group is None:
        return None
    return {
        "state": group.state,
        "members": len(group.members),
        "lag": group.lag,
        "lag_ms": group.lag_ms,
    }


def _lag(picture: ClusterPicture, name: str) -> Values | None:
    number, _, rest = name.partition(":")
    topic, _, group_id = rest.partition(":")
    group = picture.groups.get(group_id)
    for each in group.lags if group else ():
        if each.topic == topic and str(each.partition) == number:
            return {"committed": each.committed, "lag": each.lag, "lag_ms": each.lag_ms}
    return None


def _pipeline(picture: ClusterPicture, name: str) -> Values | None:
    for each in picture.pipelines:
        if each.name == name:
            return {
                "state": each.state,
                "rows_rate": each.rows_rate,
                "lag": each.lag,
                "batch_ms": each.batch_ms,
            }
    return None


KINDS: dict[str, Callable[[ClusterPicture, str], Values | None]] = {
    "": _cluster,
    "broker": _broker,
    "topic": _topic,
    "partition": _partition,
    "group": _group,
    "lag": _lag,
    "pipeline": _pipeline,
}
