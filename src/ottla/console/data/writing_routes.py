"""Requests that write records by hand, write selected ones again, or take them as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.client.errors import KafkaError

from ..access.guard import audit, require
from ..access.permissions import Permission
from . import downloading, parameters, writing
from .browsing import PAGE_RECORDS_MAX, Browse
from .messages import Wanted, begin, condition_of
from .service import Data, sentences, topic_of
from .work import Deadline, Problem, Put, Stop

SELECTED = re.compile(r"\d{1,10}:\d{1,19}")


class Writing:
    def __init__(self, data: Data) -> None:
        self._data = data

    def routes(self, prefix: str = "/c/{cluster}") -> list[BaseRoute]:
        path = f"{prefix}/topics/{{topic}}/messages"
        return [
            Route(f"{path}/produce", self.produce, methods=["POST"]),
            Route(f"{path}/replay", self.replay, methods=["POST"]),
            Route(f"{path}/download", self.download, methods=["GET", "POST"]),
        ]

    async def produce(self, request: Request) -> Response:
        """`{"records": [{key, value, headers, partition, timestamp, key_format, value_format}],
        "compression": "none"}`."""
        cluster, topic = topic_of(request, Permission.PRODUCE)
        body = await json_of(request)
        with sentences():
            given = records_in(body)
            records = [
                writing.record_of(each, self._data.schemas, cluster.name, topic) for each in given
            ]
            compression = str(body.get("compression") or "none")
        return await self._written(
            request, "produce", topic, lambda: records, topic=topic, compression=compression
        )

    async def replay(self, request: Request) -> Response:
        """`{"records": ["0:12", …], "to": topic, "partition": "keep" or "key", "keep_time": true,
        "origin": true, "compression": "none"}`."""
        cluster, source = topic_of(request, Permission.READ)
        body = await json_of(request)
        with sentences():
            places = selected(body.get("records"))
            target = str(body.get("to") or "")
            if not target:
                raise Problem("to: the topic that they are written to.")
            partition = parameters.choice(
                {"partition": str(body.get("partition") or "")}, "partition",
                (writing.BY_KEY, writing.KEEP), writing.BY_KEY,
            )  # fmt: skip
            compression = str(body.get("compression") or "none")
        keep_time, origin = body.get("keep_time", True) is True, body.get("origin") is True
        require(request, Permission.PRODUCE, cluster.name, target)

        def records() -> list[writing.NewRecord]:
            return [
                writing.again(each, partition=partition, keep_time=keep_time, origin=origin)
                for each in writing.read_selected(cluster, source, places)
            ]

        return await self._written(
            request, "replay", f"{source} to {target}", records, topic=target,
            compression=compression,
        )  # fmt: skip

    async def _written(
        self,
        request: Request,
        action: str,
        about: str,
        records: Any,
        *,
        topic: str,
        compression: str,
    ) -> Response:
        """Write them, and keep in the audit log what came of it (never what they say)."""
        cluster = self._data.console.clusters[request.path_params["cluster"]]

        def work() -> writing.Written:
            try:
                done = writing.write(cluster, topic, records(), compression=compression)
            except (Problem, KafkaError, TimeoutError) as error:
                audit(request, action, cluster.name, about, "failed", str(error))
                raise
            result = "failed" if done.errors else "done"
            detail = f"{done.count} of {len(done.places)} records"
            audit(request, action, cluster.name, about, result, "; ".join([detail, *done.errors]))
            return done

        with sentences():
            done = await self._data.writers.run(work)
        cluster.refresh()
        return JSONResponse(done.as_json(), 200 if not done.errors else 502)

    async def download(self, request: Request) -> Response:
        """The records that the page would show, up to `count`; with POST those that are selected:
        `{"records": ["0:12", …], "format": "csv"}`."""
        cluster, topic = topic_of(request)
        query: Mapping[str, str] = request.query_params
        places = None
        with sentences():
            if request.method == "POST":
                body = await json_of(request)
                places = selected(body.get("records"))
                query = {name: str(body[name]) for name in ("format", "exact") if body.get(name)}
            kind = parameters.choice(query, "format", downloading.KINDS, downloading.JSON_LINES)
            most = parameters.number(query, "count", 10_000, 1, downloading.RECORDS_MAX)
            wanted = Wanted.of({**query, "count": str(PAGE_RECORDS_MAX)})
            exact = query.get("exact") == "1"

        def records(stop: Stop) -> Iterator[downloading.Record]:
            if places is not None:
                yield from writing.read_selected(cluster, topic, places, stop)
                return
            admin, deadline = cluster.admin(), Deadline(downloading.TIME_MS)
            bounds, positions, _ = begin(cluster, topic, wanted)
            with condition_of(admin, topic, wanted, bounds, stop, deadline) as condition:
                browse = Browse(
                    admin, topic, positions, bounds, count=min(most, PAGE_RECORDS_MAX),
                    back=wanted.back, condition=condition, whole=True, deadline=deadline,
                    stop=stop, scanned_max=2**63 - 1,
                )  # fmt: skip
                left = most
                while left > 0:
                    page = browse.page()
                    yield from (row.record for row in page.rows[:left])
                    left -= len(page.rows)
                    if not page.complete:
                        raise Problem("It took too long: narrow it.")
                    if len(page.rows) < min(most, PAGE_RECORDS_MAX):
                        return

        def work(put: Put, stop: Stop) -> None:
            found = records(stop)
            lines = (
                downloading.json_lines(found)
                if kind == downloading.JSON_LINES
                else downloading.csv_lines(found, exact=exact)
            )
            downloading.put_all(lines, put)

        name = quote(f"{topic}.{kind}", safe="")
        return self._data.readers.streamed_bytes(
            work,
            media=downloading.KINDS[kind],
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
        )


async def json_of(request: Request) -> dict[str, Any]:
    """The body: an object."""
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    return found


def records_in(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """`records`, or `lines`: JSON lines as one text."""
    lines = body.get("lines")
    given = body.get("records")
    if lines is not None:
        given = []
        for number, line in enumerate(str(lines).splitlines(), 1):
            if not line.strip():
                continue
            try:
                given.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise Problem(f"line {number}: {error}") from None
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Problem("records: a list of objects with key, value, headers, partition, timestamp")
    return given


def selected(given: Any) -> list[tuple[int, int]]:
    if not isinstance(given, list) or not all(
        isinstance(each, str) and SELECTED.fullmatch(each) for each in given
    ):
        raise Problem('records: a list of partition:offset, such as ["0:12"]')
    pairs = (each.split(":") for each in given)
    return [(int(partition), int(offset)) for partition, offset in pairs]
