"""`commitGroup`: what a query has finished is committed to a consumer group, for every lag tool.

The group only shows how far the query is; Spark's checkpoint decides where it goes on. A listener
commits the end of each micro-batch when it is done. In a session without the listener (`register`
was not called), and on Spark 4.0 and 4.1, which do not pass the group on in the progress, the
reader's own `commit` does it, which Spark calls when the next batch is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .group_commits import GroupCommits
from .offsets import decode, notes

commits = GroupCommits()
# How clients get in, by brokers; "" is for all others. A progress, which goes to logs and other
# listeners, does not say that.
clients: dict[str, Mapping[str, Any]] = {}


def commit_progress(
    progress: Mapping[str, Any] | None,
    *,
    servers: str = "",
    group: str = "",
    client: Mapping[str, Any] | None = None,
) -> None:
    """Commit how far a query is, from its `lastProgress`: at once, in this thread.

    Since Spark 4.2 the source's `commitGroup` is in the progress; before that only the caller knows
    the group and its brokers. `client` are Kafka's properties for brokers that want TLS or a login;
    without them it is the reader that commits there.
    """
    for source in (progress or {}).get("sources", ()):
        said = notes(source["latestOffset"])
        chosen = said.get("commitGroup", group)
        at = said.get("kafka.bootstrap.servers", servers)
        how = clients.get(at, clients.get("")) if client is None else client
        if chosen and (how or not said.get("secured")):
            commits.commit(at, chosen, decode(source["endOffset"]), how)


class CommitListener(StreamingQueryListener):
    """Commits the progress of every query whose source has `commitGroup`."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done."""
        commit_progress(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new was done."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last progress came before this."""
        commits.close()


listeners: WeakKeyDictionary[SparkSession, CommitListener] = WeakKeyDictionary()


def install(spark: SparkSession) -> None:
    """Let this session's queries commit their progress; once is enough."""
    if spark not in listeners:
        listeners[spark] = CommitListener()
        spark.streams.addListener(listeners[spark])
