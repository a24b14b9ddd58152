"""What clusters look like: from the newest picture, so that nothing here waits for a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..access.guard import principal_of, require, require_to_see_security
from ..access.permissions import Permission
from ..picture import ClusterPicture
from ..web import series
from ..web.asked import Answer, asked_of
from ..web.configs import read_configs
from ..web.formats import now_ms
from ..web.pages import security
from ..web.pages.topic import PRODUCERS_PARTITIONS_MAX, read_producers, topic_of
from ..web.rendering import cluster_of, console_of, picture_of
from ..web.visible import visible
from .endpoint import LISTED, Endpoint, json_answer, listed, plain

CLUSTER = "/clusters/{cluster}"
PARTS = ("brokers", "topics", "groups", "transactions", "reassignments", "pipelines")


def summary(picture: ClusterPicture) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: plain(getattr(picture, name))
        for name, field in ClusterPicture.__dataclass_fields__.items()
        if field.init and name not in PARTS
    }
    counts = {name: len(getattr(picture, name)) for name in PARTS}
    return found | {
        "age_ms": picture.age_ms(now_ms()),
        "offline": picture.offline,
        "under_replicated": picture.under_replicated,
        "counts": counts,
    }


async def me(request: Request) -> Response:
    principal = principal_of(request)
    return json_answer(
        {
            "name": principal.name,
            "grants": principal.grants,
            "within": principal.within,
            "read_only": principal.read_only,
        }
    )


async def clusters(request: Request) -> Response:
    principal = principal_of(request)
    found = {
        name: summary(visible(principal, each.picture))
        for name, each in console_of(request).clusters.items()
        if principal.may(Permission.VIEW, name)
    }
    return listed(request, found)


async def cluster(request: Request) -> Response:
    return json_answer(summary(picture_of(request)))


async def brokers(request: Request) -> Response:
    return listed(request, {str(each.node_id): each for each in picture_of(request).brokers})


async def topics(request: Request) -> Response:
    found = picture_of(request).topics
    if request.query_params.get("partitions") != "1":
        return listed(request, found, lambda each: replace(each, partitions=()))
    return listed(request, found)


async def topic(request: Request) -> Response:
    return json_answer(topic_of(request, picture_of(request), request.path_params["topic"]))


async def producers(request: Request) -> Response:
    shown = topic_of(request, picture_of(request), request.path_params["topic"])
    numbers = [each.partition for each in shown.partitions if each.leader is not None]
    some = numbers[:PRODUCERS_PARTITIONS_MAX]
    answer = await asked_of(request).get(
        cluster_of(request),
        ("producers", shown.name, 0),
        lambda admin: read_producers(admin, shown.name, some) if some else [],
    )
    return told(answer, [{"partition": at, **plain(each)} for at, each in answer.value or ()])


async def topic_configs(request: Request) -> Response:
    name = request.path_params["topic"]
    topic_of(request, picture_of(request), name)
    return await configs(request, "topic", name)


async def broker_configs(request: Request) -> Response:
    name = request.path_params["broker"]
    if name not in {str(each.node_id) for each in picture_of(request).brokers}:
        raise HTTPException(404, f"No broker {name[:80]!r} is known.")
    return await configs(request, "broker", name)


async def configs(request: Request, kind: str, name: str) -> Response:
    answer = await asked_of(request).get(
        cluster_of(request), ("configs", kind, name), lambda admin: read_configs(admin, kind, name)
    )
    return told(answer, answer.value or [])


def told(answer: Answer, items: list[Any]) -> Response:
    """What a cluster was asked for: 503 where it has not told it yet."""
    if answer.value is None:
        text = answer.error or "The cluster has not answered yet; ask again."
        raise HTTPException(503, text, {"Retry-After": "1"})
    return json_answer({"age_ms": answer.age_ms, "items": items})


async def groups(request: Request) -> Response:
    found = picture_of(request).groups
    if request.query_params.get("details") != "1":
        return listed(request, found, lambda each: replace(each, members=(), lags=()))
    return listed(request, found)


async def group(request: Request) -> Response:
    name = request.path_params["group"]
    found = picture_of(request).groups.get(name)
    if found is None:
        raise HTTPException(404, f"No group {name[:300]!r} is known.")
    return json_answer(found)


async def transactions(request: Request) -> Response:
    found = picture_of(request).transactions
    return listed(request, {each.transactional_id: each for each in found})


async def reassignments(request: Request) -> Response:
    found = picture_of(request).reassignments
    return listed(request, {f"{each.topic}-{each.partition}": each for each in found})


async def pipelines(request: Request) -> Response:
    return listed(request, {each.name: each for each in picture_of(request).pipelines})


async def measures(request: Request) -> Response:
    """Which series there are of a measure, of what one may view."""
    cluster = cluster_of(request)
    require(request, Permission.READ, cluster.name)
    key = series.key_of(f'["{request.path_params["measure"]}", "", ""]', cluster.name)
    found = console_of(request).history.subjects(cluster.name, key.measure)
    return json_answer({"items": [{"subject": each[0], "topic": each[1]} for each in found]})


async def acls(request: Request) -> Response:
    require_to_see_security(request, cluster_of(request).name)
    answer = await security.acls_of(request)
    return told(answer, [each._asdict() for each in answer.value.lines] if answer.value else [])


async def scram_users(request: Request) -> Response:
    require_to_see_security(request, cluster_of(request).name)
    answer = await security.users_of(request)
    return told(answer, [each._asdict() for each in answer.value or ()])


async def quotas(request: Request) -> Response:
    require_to_see_security(request, cluster_of(request).name)
    answer = await security.quotas_of(request)
    return told(answer, [each.told() for each in answer.value or ()])


ENDPOINTS = (
    Endpoint("GET", "/me", me, "Who asks: name, roles, and what bounds the token."),
    Endpoint("GET", "/clusters", clusters, "The clusters, each in short.", LISTED),
    Endpoint("GET", CLUSTER, cluster, "A cluster in short: its rates, problems, how old it is."),
    Endpoint("GET", f"{CLUSTER}/brokers", brokers, "Brokers: rates, requests, log dirs.", LISTED),
    Endpoint("GET", f"{CLUSTER}/brokers/{{broker}}/configs", broker_configs,
             "A broker's configs, and where each value comes from."),
    Endpoint("GET", f"{CLUSTER}/topics", topics, "Topics.",
             {**LISTED, "partitions": "1: with all partitions."}),
    Endpoint("GET", f"{CLUSTER}/topics/{{topic}}", topic, "A topic with its partitions."),
    Endpoint("GET", f"{CLUSTER}/topics/{{topic}}/configs", topic_configs,
             "A topic's configs, and where each value comes from."),
    Endpoint("GET", f"{CLUSTER}/topics/{{topic}}/producers", producers,
             "Producers that the leaders remember."),
    Endpoint("GET", f"{CLUSTER}/groups", groups, "Groups with their lag.",
             {**LISTED, "details": "1: with members and partitions."}),
    Endpoint("GET", f"{CLUSTER}/groups/{{group:path}}", group,
             "A group: members, assignment, lag of each partition in records and milliseconds."),
    Endpoint("GET", f"{CLUSTER}/transactions", transactions, "Open transactions.", LISTED),
    Endpoint("GET", f"{CLUSTER}/reassignments", reassignments,
             "Replicas that move, with progress.", LISTED),
    Endpoint("GET", f"{CLUSTER}/pipelines", pipelines, "Spark pipelines.", LISTED),
    Endpoint("GET", f"{CLUSTER}/acls", acls, "The cluster's ACLs; none without an authorizer."),
    Endpoint("GET", f"{CLUSTER}/scram-users", scram_users,
             "Who may log in by SCRAM, never with what."),
    Endpoint("GET", f"{CLUSTER}/quotas", quotas,
             "What clients may use; in an entity null is the default of its type."),
    Endpoint("GET", f"{CLUSTER}/series", series.series, "Values over time.",
             {"key": 'One or several: ["measure", "subject", "topic"] as JSON.',
              "from": "Milliseconds since 1970.", "to": "Milliseconds since 1970.",
              "points": "At most so many of each."}),
    Endpoint("GET", f"{CLUSTER}/series/{{measure}}", measures,
             "Of which subjects there is a series of this measure."),
)  # fmt: skip
