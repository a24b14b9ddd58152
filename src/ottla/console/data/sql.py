"""The page of SQL, and its answers as lines of JSON: columns, rows, progress, the end."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..access.guard import principal_of, require
from ..access.permissions import Permission
from ..web.rendering import cluster_of, picture_of, render
from ..web.visible import topics_for
from . import parameters
from .positions import chosen, partitions_of
from .pushdown import Limits
from .query_process import PROCESSES, Asked
from .querying import ISOLATION, ROWS_MAX, TIME_MS, topics_of
from .service import Data, sentences
from .work import Problem, Put, Stop
from .writing_routes import json_of

TOPICS_SHOWN_MAX = 1_000  # in the page's list
EXAMPLE = """SELECT partition, count(*) AS records, max(timestamp) AS newest
FROM "{topic}"
GROUP BY ALL ORDER BY partition"""


class Sql:
    def __init__(self, data: Data) -> None:
        self._data = data

    def routes(self, prefix: str = "/c/{cluster}") -> list[BaseRoute]:
        return [Route(f"{prefix}/sql", self.page), *self.readers(prefix)]

    def readers(self, prefix: str) -> list[BaseRoute]:
        return [Route(f"{prefix}/sql/run", self.run, methods=["POST"])]

    async def page(self, request: Request) -> Response:
        picture = picture_of(request)
        readable = [
            name
            for name in topics_for(principal_of(request), Permission.READ, picture)
            if not picture.topics[name].internal
        ]
        topic = request.query_params.get("topic") or (readable[0] if readable else "topic")
        return render(
            request,
            "sql.html",
            topics=readable[:TOPICS_SHOWN_MAX],
            more_topics=max(0, len(readable) - TOPICS_SHOWN_MAX),
            statement=request.query_params.get("statement")
            or EXAMPLE.format(topic=topic.replace('"', '""')),
            isolation=ISOLATION,
            rows_max=ROWS_MAX,
            time_s=TIME_MS // 1000,
        )

    async def run(self, request: Request) -> Response:
        """`{"statement": "SELECT …", "from": time, "to": time, "partitions": "0,3-5",
        "isolation": "read_committed", "rows": 1000}`."""
        cluster = cluster_of(request)
        body = await json_of(request)
        given = {name: str(each) for name, each in body.items() if each not in (None, "")}
        with sentences():
            text = given.get("statement", "")
            if not text.strip():
                raise Problem("statement: one SELECT over topics.")
            rows = parameters.number(given, "rows", ROWS_MAX, 1, ROWS_MAX)
            isolation = parameters.choice(given, "isolation", ISOLATION, ISOLATION[0])
            from_ms, to_ms = parameters.time_ms(given, "from"), parameters.time_ms(given, "to")
            # Before anything is read: who may not read a topic gets 403, and learns nothing of it.
            topics = await self._data.readers.run(topics_of, text)
        for topic in topics:
            require(request, Permission.READ, cluster.name, topic)
        partitions = given.get("partitions", "")

        def work(put: Put, stop: Stop) -> None:
            limits = Limits(from_ms=from_ms, to_ms=to_ms)
            if partitions:
                known = sorted({p for each in topics for p in partitions_of(cluster, each)})
                limits = limits.both(Limits(partitions=frozenset(chosen(known, partitions))))
            asked = Asked.of(cluster, text, limits, isolation, rows, topics, TIME_MS)
            PROCESSES.answer(asked, put, stop)

        return self._data.queries.streamed_lines(work)
