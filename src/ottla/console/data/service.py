"""What the pages of this package share: the console, its threads, and the questions that each of
them asks first: which cluster, which topic, may this one read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..access.guard import require
from ..access.permissions import Permission
from ..context import Cluster, Console
from ..web.rendering import cluster_of
from .schemas import NO_SCHEMAS, Schemas
from .showing import Formats
from .work import Problem, Workers

READ_THREADS, READS_WAITING_MAX = 8, 32  # pages of records and downloads
WRITE_THREADS, WRITES_WAITING_MAX = 2, 8
TAILS_MAX = 16  # at once; each has a thread
QUERY_THREADS, QUERIES_WAITING_MAX = 2, 4  # each has the memory and threads of duck.py


class Data:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.readers = Workers("read", READ_THREADS, READS_WAITING_MAX)
        self.tails = Workers("tail", TAILS_MAX, 0)
        self.queries = Workers("sql", QUERY_THREADS, QUERIES_WAITING_MAX)
        self.writers = Workers("write", WRITE_THREADS, WRITES_WAITING_MAX)
        self.schemas: Schemas = console.schemas or NO_SCHEMAS

    def formats(self, cluster: Cluster, topic: str, key: str, value: str) -> Formats:
        decoders = self.schemas.decoders
        return Formats(
            key,
            value,
            decoders(cluster.name, topic, "key"),
            decoders(cluster.name, topic, "value"),
        )


def data_of(console: Console) -> Data:
    """The one of this console: its pages and its API share limits of threads."""
    if console.shared.get("data") is None:
        console.shared["data"] = Data(console)
    found: Data = console.shared["data"]
    return found


def topic_of(request: Request, permission: Permission = Permission.READ) -> tuple[Cluster, str]:
    """The cluster and the topic that the path names, for one who may do this with it."""
    cluster = cluster_of(request)
    topic = request.path_params["topic"]
    require(request, permission, cluster.name, topic)
    return cluster, topic


@contextmanager
def sentences() -> Iterator[None]:
    """A wrong parameter is the asker's fault: 400 with the sentence."""
    try:
        yield
    except Problem as problem:
        raise HTTPException(400, str(problem)) from None
