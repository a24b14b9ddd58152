"""The three brokers of `make demo-cluster`: the leader of the busiest partition is killed.

`Brokers` kills it, starts it again in a thread, and checks that all replicas are in sync again.
"""

from __future__ import annotations

import threading

from ottla import TopicPartition
from ottla.client.admin import OffsetSpec
from ottla.testing.cluster import Cluster

from .story import Check

COUNT = 3


class Brokers:
    """A running cluster, one broker of which dies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.killed: int | None = None
        self.failure: BaseException | None = None
        self._news: list[str] = []
        self._restart: threading.Thread | None = None

    @property
    def starting(self) -> bool:
        """Whether the killed broker was told to start again."""
        return self._restart is not None

    def news(self) -> list[str]:
        """What has happened to it since this was last asked."""
        taken, self._news = self._news, []
        return taken

    def kill_busiest_leader(self, topic: str) -> None:
        """SIGKILL to the leader of the partition with most records."""
        partition = self._busiest(topic)
        self.killed = self.cluster.leader(topic, partition)
        pid = self.cluster.pid(self.killed)
        self.cluster.kill(self.killed)
        self._news.append(
            f"SIGKILL to broker {self.killed} (process {pid}), the leader of {topic}-{partition}"
        )

    def start_again(self) -> None:
        """Start the broker that was killed, while others go on."""
        self._restart = threading.Thread(target=self._start, name="broker", daemon=True)
        self._restart.start()

    def check(self, topics: list[str]) -> Check:
        """Wait until every replica is in sync; a failure is in the check."""
        claim = f"all {COUNT} brokers have every replica in sync again"
        if self._restart is not None:
            self._restart.join()
        try:
            if self.failure is not None:
                raise self.failure
            with self.cluster.admin() as admin:
                described = admin.describe_topics(topics)
            count = 0
            for topic in described:
                for partition in topic["partitions"]:
                    self.cluster.wait_for_isr(topic["name"], partition["partition_index"])
                    count += 1
        except Exception as failure:
            return Check(claim, "yes", f"no: {failure}", False)
        return Check(claim, f"{count} partitions", f"{count} partitions", True)

    def _busiest(self, topic: str) -> int:
        with self.cluster.admin() as admin:
            (described,) = admin.describe_topics([topic])
            wanted = {
                TopicPartition(topic, each["partition_index"]): OffsetSpec.LATEST
                for each in described["partitions"]
            }
            ends = admin.list_partition_offsets(wanted)
        return max(ends, key=lambda each: (ends[each].offset, -each.partition)).partition

    def _start(self) -> None:
        assert self.killed is not None
        try:
            self.cluster.restart(self.killed)
        except Exception as failure:
            self.failure = failure
        else:
            self._news.append(f"broker {self.killed} is started again, and copies what it lacks")
