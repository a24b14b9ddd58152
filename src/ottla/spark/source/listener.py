"""`commitGroup`: what a query has finished is committed to a consumer group, for every lag tool.

The group only shows how far the query is; Spark's checkpoint decides where it goes on. A listener
commits the end of each micro-batch when it is done. Where no listener is (nobody called
`register`), the reader's own `commit` does it, which Spark calls when the next batch is built.
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


def commit_progress(progress: Mapping[str, Any] | None) -> None:
    """Commit how far a query is, from its `lastProgress`: at once, in this thread."""
    for source in (progress or {}).get("sources", ()):
        where = notes(source["latestOffset"])
        if "commitGroup" in where:
            commits.commit(
                where["kafka.bootstrap.servers"], where["commitGroup"], decode(source["endOffset"])
            )


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
