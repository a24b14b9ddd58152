"""What pages cost at a thousand topics, in calls of functions; times are with the benchmarks."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from ottla.console.access.middleware import protect
from ottla.console.access.open import EVERYBODY, OpenAccess
from ottla.console.access.permissions import Grant, Principal, Role
from tests.work import counted_calls

from .pictures import application, picture
from .recording import RecordingAdmin

TOPICS, GROUPS = 1000, 200
# The dearest, the overview, has 73,000: about 10 ms, of the 50 that a page may take.
CALLS_MAX = 100_000
SOME = Principal("vera", (Grant(Role.VIEWER, "*", "topic-00*"),))
PAGES = (
    "", "brokers", "brokers/0", "brokers/0?tab=partitions", "topics", "topics?sort=size&q=topic-09",
    "topics?page=7", "topics/topic-0042", "topics/topic-0042?tab=groups", "groups",
    "groups?sort=lag&desc=1", "groups/group-007", "transactions", "reassignments", "pipelines",
)  # fmt: skip


@pytest.mark.parametrize("principal", [EVERYBODY, SOME], ids=["all", "some"])
def test_no_page_costs_more_with_a_thousand_topics_than_it_may(principal: Principal) -> None:
    """Every page of 1,000 topics of three partitions and 200 groups stays below its limit, also
    for one who may see only some of them."""
    app, _, _ = application(picture(topics=TOPICS, groups=GROUPS), RecordingAdmin())
    transport = httpx.ASGITransport(protect(app, OpenAccess(principal)))

    async def costs() -> dict[str, int]:
        found = {}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in PAGES:
                await client.get(f"/c/main/{path}")  # templates are compiled once
                with counted_calls() as calls:
                    answer = await client.get(f"/c/main/{path}")
                assert answer.status_code == 200, path
                found[path] = calls.count
        return found

    found = asyncio.run(costs())
    assert {path: count for path, count in found.items() if count > CALLS_MAX} == {}
    assert max(found.values()) > 2_000  # they are counted at all
