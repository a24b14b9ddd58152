"""What pages cost at a thousand topics, in calls of functions; times are with the benchmarks."""

from __future__ import annotations

import asyncio
import itertools

import httpx
import pytest

from ottla.console.access.middleware import protect
from ottla.console.access.open import EVERYBODY, OpenAccess
from ottla.console.access.permissions import Grant, Permission, Principal, Role
from ottla.console.picture import WORKED_OUT_MAX
from ottla.console.web.visible import visible
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


def test_what_may_be_seen_is_found_out_once_for_a_picture() -> None:
    """Two of the same roles share it until the next picture; others, and tokens, have their own;
    what is kept has a limit."""
    now = picture(topics=50)
    seen = visible(SOME, now)
    assert visible(Principal("otto", SOME.grants, read_only=True), now) is seen
    assert set(seen.topics) == {f"topic-00{each:02}" for each in range(50)}
    token = Principal("vera", SOME.grants, within=Grant(Role.VIEWER, "*", "topic-001*"))
    assert len(visible(token, now).topics) == 10
    assert visible(SOME, now) is seen
    assert visible(SOME, picture(topics=50)) is not seen
    for each in range(2 * WORKED_OUT_MAX):
        visible(Principal("vera", (Grant(Role.VIEWER, "*", f"topic-{each}*"),)), now)
    assert len(now.worked_out) <= WORKED_OUT_MAX


GRANTS = [
    Grant(role, clusters, topics)
    for role in (Role.VIEWER, Role.OPERATOR)
    for clusters in ("*", "m*", "other")
    for topics in ("*", "a*", "[ab]?", "*x*y*", "")
]


@pytest.mark.parametrize("permission", [Permission.VIEW, Permission.PRODUCE, Permission.CHANGE])
@pytest.mark.parametrize("read_only", [False, True])
def test_many_topics_at_once_are_judged_as_each_alone(
    permission: Permission, read_only: bool
) -> None:
    """`of_topics` says what `may` says, for every pair of grants, with and without a token."""
    topics = ("a", "ab", "b1", "axby", "xy", "A", "a\nb", "")
    for pair in itertools.combinations(GRANTS, 2):
        for within in (None, Grant(Role.VIEWER, "m*", "a*"), Grant(Role.ADMIN, "other", "*")):
            principal = Principal("vera", pair, read_only, within)
            at_once = principal.of_topics(permission, "main")
            assert [at_once(each) for each in topics] == [
                principal.may(permission, "main", each) for each in topics
            ], principal
