"""One topic: its partitions, the groups that read it, its configs and producers."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.admin import Admin
from ottla.client.structs import TopicPartition

from ...access.guard import require
from ...access.permissions import Permission
from ...picture import ClusterPicture, PartitionPicture, TopicPicture
from ..asked import Answer, asked_of
from ..configs import chosen, read_configs
from ..listing import Column, Page
from ..rendering import cluster_of, picture_of, render

PRODUCERS_PARTITIONS_MAX = 50  # of which producers are asked for at once
TABS = {
    "partitions": "Partitions",
    "groups": "Groups",
    "configs": "Configs",
    "producers": "Producers",
}


def records_of(partition: PartitionPicture) -> int | None:
    start, end = partition.start_offset, partition.end_offset
    return None if start is None or end is None else end - start


PARTITIONS: dict[str, Column[PartitionPicture]] = {
    "partition": Column(lambda each: each.partition),
    "leader": Column(lambda each: each.leader),
    "start": Column(lambda each: each.start_offset, descending=True),
    "end": Column(lambda each: each.end_offset, descending=True),
    "records": Column(records_of, descending=True),
    "size": Column(lambda each: each.size_bytes, descending=True),
}


class Skew(NamedTuple):
    """How unevenly a topic lies: 1 where all partitions are alike."""

    size: float | None  # the greatest partition, of the mean
    records: float | None
    leaders: dict[int, int]  # partitions led, by broker
    not_preferred: int  # partitions that are not led by their first replica


def skew_of(topic: TopicPicture) -> Skew:
    leaders = Counter(each.leader for each in topic.partitions if each.leader is not None)
    return Skew(
        _skew([each.size_bytes for each in topic.partitions]),
        _skew([records_of(each) for each in topic.partitions]),
        dict(sorted(leaders.items())),
        sum(each.leader != each.replicas[0] for each in topic.partitions if each.replicas),
    )


def _skew(values: list[int | None]) -> float | None:
    known = [each for each in values if each is not None]
    return max(known) * len(known) / sum(known) if sum(known) > 0 else None


def topic_of(request: Request, picture: ClusterPicture, name: str) -> TopicPicture:
    """The topic of this name; whoever may not view it does not learn whether it exists."""
    require(request, Permission.VIEW, picture.name, name)
    topic = picture.topics.get(name)
    if topic is None:
        raise HTTPException(
            404,
            f"No topic {name[:300]!r} is known. One that was created just now is shown as soon as "
            "the cluster has been asked again.",
        )
    return topic


def groups_of(picture: ClusterPicture, topic: str) -> list[dict[str, Any]]:
    """The groups that have offsets or members on the topic, with what they lack of it."""
    found = []
    for group in picture.groups.values():
        lags = [each for each in group.lags if each.topic == topic]
        members = [each for each in group.members if any(at[0] == topic for at in each.assigned)]
        if lags or members:
            behind = [each.lag for each in lags if each.lag is not None]
            times = [each.lag_ms for each in lags if each.lag_ms is not None]
            found.append(
                {
                    "group": group,
                    "members": len(members),
                    "lag": sum(behind) if behind else None,
                    "lag_ms": max(times, default=None),
                }
            )
    return sorted(found, key=lambda each: -(each["lag"] or 0))


def read_producers(admin: Admin, topic: str, partitions: list[int]) -> list[tuple[int, Any]]:
    asked = [TopicPartition(topic, each) for each in partitions]
    found = admin.describe_producers(asked)
    return [
        (each.partition, producer)
        for each, state in sorted(found.items())
        for producer in state.active_producers
    ]


async def topic(request: Request) -> Response:
    picture = picture_of(request)
    shown = topic_of(request, picture, request.path_params["topic"])
    tab = request.query_params.get("tab", "partitions")
    context: dict[str, Any] = {
        "picture": picture,
        "topic": shown,
        "skew": skew_of(shown),
        "tab": tab if tab in TABS else "partitions",
        "tabs": TABS,
        "messages": "/c/{cluster}/topics/{topic}/messages" in request.app.state.paths,
    }
    if tab == "groups":
        context["readers"] = groups_of(picture, shown.name)
    elif tab == "configs":
        context |= await config_context(request, "topic", shown.name)
    elif tab == "producers":
        context |= await producers_context(request, shown)
    else:
        context["page"] = Page(request, shown.partitions, PARTITIONS)
    return render(request, "topic.html", **context)


async def config_context(request: Request, kind: str, name: str) -> dict[str, Any]:
    answer: Answer = await asked_of(request).get(
        cluster_of(request),
        ("configs", kind, name),
        lambda admin: read_configs(admin, kind, name),
    )
    search = request.query_params.get("q", "")[:200]
    only = request.query_params.get("only", "")
    return {
        "answer": answer,
        "search": search,
        "only": only,
        "configs": chosen(answer.value or (), search, only),
        "config_kind": kind,
        "config_name": name,
    }


async def producers_context(request: Request, shown: TopicPicture) -> dict[str, Any]:
    numbers = [each.partition for each in shown.partitions if each.leader is not None]
    text = request.query_params.get("from", "0")
    start = int(text) if text.isdecimal() and len(text) < 9 else 0
    some = [each for each in numbers if each >= start][:PRODUCERS_PARTITIONS_MAX]
    answer = await asked_of(request).get(
        cluster_of(request),
        ("producers", shown.name, start),
        lambda admin: read_producers(admin, shown.name, some) if some else [],
    )
    after = next((each for each in numbers if some and each > some[-1]), None)
    return {"answer": answer, "asked_partitions": some, "next_from": after}


routes: list[BaseRoute] = [Route("/c/{cluster}/topics/{topic:path}", topic)]
