"""The page of a topic's records, its rows, and one record's bytes as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.admin import Admin
from ottla.client.structs import ConsumerRecord, TopicPartition

from ..access.guard import principal_of
from ..access.permissions import Permission
from ..context import Cluster
from ..web.rendering import render
from ..web.visible import topics_for
from . import parameters
from .browsing import PAGE_RECORDS_MAX, SCAN_TIME_MS, Browse, Page, Progress
from .filtering import SqlCondition
from .positions import Bounds, at_time, bounds_of, chosen, partitions_of, sample
from .service import Data, sentences, topic_of
from .showing import AUTO, FORMATS, SHOWN_BYTES_MAX
from .tail import WATCH_MS, Seen, Tail, watch
from .work import EVENTS, Deadline, Emit, Problem, Stop
from .writing import COMPRESSIONS, WRITTEN_FORMATS

PAGE_RECORDS = 50
COUNTS = (20, 50, 100, 200, PAGE_RECORDS_MAX)
STARTS = ("latest", "earliest", "offset", "time")
FORWARD, BACK = "forward", "back"
RECORD_WAIT_MS = 20_000
TARGETS_MAX = 2_000  # topics that the page suggests as targets of a replay


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asks for: from where, in which direction, how many."""

    start: str
    offset: int
    time_ms: int | None
    positions: dict[int, int] | None  # of a cursor; then `start` does not count
    back: bool
    partitions: str
    count: int
    markers: bool
    key_format: str
    value_format: str
    condition: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        start = parameters.choice(query, "from", STARTS, "latest")
        time_ms = parameters.time_ms(query, "time")
        if start == "time" and time_ms is None:
            raise Problem("time: say from when, as 2026-01-31T12:30:00Z.")
        text = query.get("positions", "")
        usual = BACK if start == "latest" else FORWARD
        return cls(
            start=start,
            offset=parameters.number(query, "offset", 0, 0, parameters.INT64_MAX),
            time_ms=time_ms,
            positions=parameters.cursor(text) if text else None,
            back=parameters.choice(query, "direction", (FORWARD, BACK), usual) == BACK,
            partitions=query.get("partitions", ""),
            count=parameters.number(query, "count", PAGE_RECORDS, 1, PAGE_RECORDS_MAX),
            markers=query.get("markers") == "1",
            key_format=parameters.choice(query, "key_format", FORMATS, AUTO),
            value_format=parameters.choice(query, "value_format", FORMATS, AUTO),
            condition=query.get("condition", "").strip(),
        )


class Messages:
    def __init__(self, data: Data) -> None:
        self._data = data

    def routes(self, prefix: str = "/c/{cluster}") -> list[BaseRoute]:
        path = f"{prefix}/topics/{{topic}}/messages"
        return [
            Route(path, self.page),
            *self.readers(prefix),
        ]

    def readers(self, prefix: str) -> list[BaseRoute]:
        """Those that answer with records, of the pages and of the API alike."""
        path = f"{prefix}/topics/{{topic}}/messages"
        return [
            Route(f"{path}/rows", self.rows),
            Route(f"{path}/record", self.record),
            Route(f"{path}/tail", self.tail),
        ]

    async def page(self, request: Request) -> Response:
        cluster, topic = topic_of(request)
        picture = cluster.picture.topics.get(topic)
        return render(
            request,
            "messages.html",
            topic=topic,
            partitions=len(picture.partitions) if picture is not None else None,
            query=request.query_params,
            counts=COUNTS,
            usual_count=PAGE_RECORDS,
            formats=FORMATS,
            written_formats=WRITTEN_FORMATS,
            compressions=COMPRESSIONS,
            targets=topics_for(principal_of(request), Permission.PRODUCE, cluster.picture)[
                :TARGETS_MAX
            ],
        )

    async def rows(self, request: Request) -> Response:
        """A page of records as lines of JSON: progress, rows, and at last the two cursors."""
        cluster, topic = topic_of(request)
        with sentences():
            wanted = Wanted.of(request.query_params)
        formats = self._data.formats(cluster, topic, wanted.key_format, wanted.value_format)

        def work(emit: Emit, stop: Stop) -> None:
            def progress(now: Progress) -> None:
                emit({"progress": now._asdict()})

            admin, deadline = cluster.admin(), Deadline(SCAN_TIME_MS)
            bounds, positions, problems = begin(cluster, topic, wanted)
            with condition_of(admin, topic, wanted, bounds, stop, deadline) as condition:
                browse = Browse(
                    admin, topic, positions, bounds, count=wanted.count, back=wanted.back,
                    condition=condition, markers=wanted.markers, deadline=deadline, stop=stop,
                    progress=progress,
                )  # fmt: skip
                page = browse.page()
                if condition is not None:
                    problems += condition.problems
            for row in page.rows:
                emit({"row": row.as_json(formats)})
            emit({"end": end_of(page, bounds, problems)})

        return self._data.readers.streamed(work)

    async def tail(self, request: Request) -> Response:
        """What is appended from now on, as events; ends with the page."""
        cluster, topic = topic_of(request)
        with sentences():
            wanted = Wanted.of(request.query_params)
        formats = self._data.formats(cluster, topic, wanted.key_format, wanted.value_format)

        def work(emit: Emit, stop: Stop) -> None:
            def show(seen: Seen) -> None:
                emit(
                    {
                        "rows": [row.as_json(formats) for row in seen.rows],
                        "skipped": seen.skipped,
                        "problems": seen.problems,
                    }
                )

            admin, deadline = cluster.admin(), Deadline(WATCH_MS)
            bounds, positions, problems = begin(
                cluster, topic, replace(wanted, start="latest", positions=None)
            )
            with condition_of(admin, topic, wanted, bounds, stop, deadline) as condition:
                show(Seen([], 0, problems))  # it has begun
                end = watch(Tail(admin, topic, positions, condition=condition), stop, show)
            emit({"end": end})

        return self._data.tails.streamed(work, media=EVENTS)

    async def record(self, request: Request) -> Response:
        """The bytes of one record's key, value or header, whole, as a file."""
        cluster, topic = topic_of(request)
        query = request.query_params
        with sentences():
            partition = parameters.number(query, "partition", -1, 0, 2**31 - 1)
            offset = parameters.number(query, "offset", -1, 0, parameters.INT64_MAX)
            part = parameters.choice(query, "part", ("key", "value", "header"), "value")
            place = parameters.number(query, "header", 0, 0, 2**31 - 1)
        found = await self._data.readers.run(read_one, cluster, topic, partition, offset)
        if found is None:
            raise HTTPException(
                404, f"There is no record {topic}-{partition} at {offset} any more."
            )
        if part == "header":
            headers = found.headers
            content = headers[place][1] if place < len(headers) else None
        else:
            content = found.key if part == "key" else found.value
        if content is None:
            raise HTTPException(404, f"This record has no {part}: it is null.")
        name = quote(f"{topic}-{partition}-{offset}-{part}.bin", safe="")
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
        )


@contextmanager
def condition_of(
    admin: Admin,
    topic: str,
    wanted: Wanted,
    bounds: Mapping[int, Bounds],
    stop: Stop,
    deadline: Deadline,
) -> Iterator[SqlCondition | None]:
    if not wanted.condition:
        yield None
        return
    values = sample(admin, topic, bounds)
    with SqlCondition(wanted.condition, values, stop, deadline) as condition:
        yield condition


def begin(
    cluster: Cluster, topic: str, wanted: Wanted
) -> tuple[dict[int, Bounds], dict[int, int], list[str]]:
    """What the chosen partitions have, where each begins, and what is left out."""
    admin = cluster.admin()
    partitions = chosen(partitions_of(cluster, topic), wanted.partitions)
    partitions, problems = without_offline(cluster, topic, partitions)
    bounds = bounds_of(admin, topic, partitions)
    if wanted.positions is not None:
        known = {each: at for each, at in wanted.positions.items() if each in bounds}
        rest = {each: bounds[each].end if wanted.back else bounds[each].start for each in bounds}
        return bounds, rest | known, problems
    if wanted.start == "time" and wanted.time_ms is not None:
        return bounds, at_time(admin, topic, bounds, wanted.time_ms), problems
    if wanted.start == "offset":
        return bounds, {each: bounds[each].within(wanted.offset) for each in bounds}, problems
    if wanted.start == "latest":
        return bounds, {each: bounds[each].end for each in bounds}, problems
    return bounds, {each: bounds[each].start for each in bounds}, problems


def without_offline(
    cluster: Cluster, topic: str, partitions: list[int]
) -> tuple[list[int], list[str]]:
    """The partitions that have a leader, and a sentence on the others."""
    known = cluster.picture.topics.get(topic)
    offline = {each.partition for each in known.partitions if each.offline} if known else set()
    absent = [each for each in partitions if each in offline]
    if not absent:
        return partitions, []
    left = [each for each in partitions if each not in offline]
    names = ", ".join(map(str, absent))
    if not left:
        raise Problem(f"No partition of these has a leader now: {names}.")
    return left, [f"left out, because they have no leader now: {names}"]


def end_of(page: Page, bounds: Mapping[int, Bounds], problems: list[str]) -> dict[str, Any]:
    return {
        "older": parameters.cursor_text(page.first),
        "newer": parameters.cursor_text(page.last),
        "has_older": any(page.first[each] > bounds[each].start for each in page.first),
        "has_newer": any(page.last[each] < bounds[each].end for each in page.last),
        "scanned": page.scanned,
        "complete": page.complete,
        "at_end": page.at_end,
        "problems": [*problems, *page.problems],
        "shown_bytes_max": SHOWN_BYTES_MAX,
    }


def read_one(
    cluster: Cluster, topic: str, partition: int, offset: int
) -> ConsumerRecord[bytes | None, bytes | None] | None:
    """The record at an offset; None if there is none."""
    place = TopicPartition(topic, partition)
    read = cluster.admin().read_batches({place: offset}, timeout_ms=RECORD_WAIT_MS)[place]
    if read.error is not None:
        raise read.error
    for batch in read.batches[:1]:
        for record in batch.records(offset)[:1]:
            if record.offset == offset:
                return record
    return None
