"""Open transactions, and those that hang: left in partitions without anybody who will end them."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.admin import Admin
from ottla.client.structs import TopicPartition

from ...picture import ClusterPicture, TransactionPicture
from ..asked import Answer, asked_of
from ..formats import now_ms
from ..listing import Column, Page
from ..rendering import cluster_of, picture_of, render

SLACK_MS = 5 * 60_000  # as Kafka's tool: clocks differ
TIMEOUT_MS_MAX = (
    900_000  # what a broker allows by default, where a transaction does not say its own
)
PARTITIONS_MAX = 5_000  # of which the leaders are asked at once
PARTITIONS_AT_ONCE = 500


class Orphan(NamedTuple):
    """A transaction that is open in a partition, and that no coordinator knows as open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


def overdue(transaction: TransactionPicture, at_ms: int) -> bool:
    """Whether it is open for longer than it may be: its coordinator should have ended it."""
    if transaction.started_ms is None:
        return False
    most = transaction.timeout_ms or TIMEOUT_MS_MAX
    return at_ms - transaction.started_ms > most + SLACK_MS


def orphans(
    admin: Admin, partitions: list[TopicPartition], open_producers: set[int]
) -> list[Orphan]:
    """Asks the leaders for their producers; what is open there and not with a coordinator hangs."""
    found = []
    for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
        some = partitions[start : start + PARTITIONS_AT_ONCE]
        for at, state in sorted(admin.describe_producers(some).items()):
            found += [
                Orphan(
                    at.topic,
                    at.partition,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_transaction_start_offset,
                    each.last_timestamp,
                )
                for each in state.active_producers
                if each.current_transaction_start_offset >= 0
                and each.producer_id not in open_producers
            ]
    return found


def partitions_of(picture: ClusterPicture) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, each.partition)
        for topic in picture.topics.values()
        for each in topic.partitions
        if each.leader is not None
    ]


COLUMNS: dict[str, Column[TransactionPicture]] = {
    "started": Column(lambda each: each.started_ms),
    "name": Column(lambda each: each.transactional_id),
    "state": Column(lambda each: each.state),
    "partitions": Column(lambda each: len(each.partitions), descending=True),
}


async def transactions(request: Request) -> Response:
    picture = picture_of(request)
    at_ms = now_ms()
    context: dict[str, Any] = {"search": request.query_params.get("find") == "1"}
    if context["search"]:
        context |= await search_context(request, picture)
    return render(
        request,
        "transactions.html",
        picture=picture,
        page=Page(
            request,
            picture.transactions,
            COLUMNS,
            text=lambda each: " ".join((each.transactional_id, *(at[0] for at in each.partitions))),
        ),
        overdue={each.transactional_id for each in picture.transactions if overdue(each, at_ms)},
        **context,
    )


async def search_context(request: Request, picture: ClusterPicture) -> dict[str, Any]:
    cluster = cluster_of(request)
    everything = partitions_of(picture)
    some = everything[:PARTITIONS_MAX]
    # Of all transactions, not of those that this one may see.
    known = {each.producer_id for each in cluster.picture.transactions}
    answer: Answer = await asked_of(request).get(
        cluster,
        ("orphans", hash(tuple(some))),
        lambda admin: orphans(admin, some, known) if some else [],
    )
    return {"answer": answer, "looked_at": len(some), "left_out": len(everything) - len(some)}


routes: list[BaseRoute] = [Route("/c/{cluster}/transactions", transactions)]
