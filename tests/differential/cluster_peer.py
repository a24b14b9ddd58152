"""A cluster of three brokers in one case: each broker is asked by itself.

Partitions get their replicas from the case, so both clusters have the same leaders. A step keeps
one broker's answer; its label says which broker was asked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tests.apache.batches import batch
from tests.apache.messages import Fields
from tests.differential.normal import Names
from tests.differential.peer import PATIENCE_S, TOPICS_VERSION, Peer, Step

BROKERS = (1, 2, 3)
LOOK_AGAIN_S = 0.02


class RealCluster(Protocol):
    """What a case needs of three brokers."""

    def port(self, node_id: int) -> int: ...

    def kill(self, node_id: int) -> None: ...

    def restart(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...


class ClusterPeer:
    """`ask` keeps a broker's answer for comparison."""

    def __init__(self, cluster: RealCluster, prefix: str, alive: Sequence[int] = BROKERS) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.alive = tuple(alive)
        self.steps: list[Step] = []
        self.names = Names(prefix)
        self._stack = contextlib.ExitStack()
        self._peers: dict[int, Peer] = {}
        for node_id in self.alive:
            peer = self._stack.enter_context(Peer(cluster.port(node_id), prefix))
            peer.steps, peer.names = self.steps, self.names
            self._peers[node_id] = peer

    def __enter__(self) -> ClusterPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def on(self, broker: int) -> Peer:
        """One broker."""
        return self._peers[broker]

    def name(self, stem: str = "topic") -> str:
        return f"{self.prefix}-{stem}"

    def ask(self, broker: int, api: str, version: int, fields: Fields, label: str = "") -> Fields:
        """Ask one broker and keep its answer."""
        return self.on(broker).ask(api, version, fields, f"broker {broker} {label}".strip())

    def ask_all(self, api: str, version: int, fields: Fields, label: str = "") -> None:
        """Ask each broker that is alive."""
        for broker in self.alive:
            self.ask(broker, api, version, fields, label)

    def create(
        self, stem: str, *assignments: Sequence[int], configs: dict[str, str] | None = None
    ) -> str:
        """A topic whose partitions have these replicas; returns when all brokers serve it."""
        name = self.name(stem)
        topic: Fields = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(brokers)}
                for index, brokers in enumerate(assignments)
            ],
            "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()],
        }
        first = self.on(self.alive[0])
        answer = first.quietly(
            "CreateTopics", TOPICS_VERSION, {"topics": [topic], "timeout_ms": 9999}
        )
        assert answer["topics"][0]["error_code"] == 0, answer
        self.wait_for(name, assignments)
        return name

    def wait_for(self, name: str, assignments: Sequence[Sequence[int]]) -> None:
        """Until all live brokers know it with all live replicas in sync, and leaders lead."""
        wanted = [sorted(set(brokers) & set(self.alive)) for brokers in assignments]

        def in_sync(found: list[Fields]) -> bool:
            return [sorted(each["isr_nodes"]) for each in found] == wanted

        for broker in self.alive:
            self.wait_for_metadata(broker, name, in_sync)
        for index, brokers in enumerate(wanted):
            if brokers:
                self._wait_for_leader(name, index)

    def wait_for_metadata(
        self, broker: int, name: str, settled: Callable[[list[Fields]], bool]
    ) -> None:
        """Until a broker's picture of the partitions is so."""
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        for _ in waiting(f"{name} at broker {broker}"):
            (found,) = self.on(broker).quietly("Metadata", 12, asked)["topics"]
            partitions = sorted(found["partitions"], key=lambda each: each["partition_index"])
            if not found["error_code"] and settled(partitions):
                return

    def wait_for_brokers(self) -> None:
        """Until the live brokers are those that all of them list: ours list a dead one for a
        second more, for librdkafka."""
        for broker in self.alive:
            for _ in waiting(f"broker {broker} lists {self.alive}"):
                listed = self.on(broker).quietly("Metadata", 12, {"topics": []})["brokers"]
                if sorted(each["node_id"] for each in listed) == sorted(self.alive):
                    break

    def partition(self, name: str, index: int = 0) -> Fields:
        """One partition as the first broker knows it."""
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        (found,) = self.on(self.alive[0]).quietly("Metadata", 12, asked)["topics"]
        return next(each for each in found["partitions"] if each["partition_index"] == index)

    def _wait_for_leader(self, name: str, index: int) -> None:
        asked = [{"partition_index": index, "timestamp": -1}]
        for _ in waiting(f"the leader of {name}-{index}"):
            leader = self.partition(name, index)["leader_id"]
            if leader not in self.alive:
                continue
            fields = {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]}
            (topic,) = self.on(leader).quietly("ListOffsets", 5, fields)["topics"]
            if not topic["partitions"][0]["error_code"]:
                return

    def produce(self, name: str, index: int = 0, count: int = 1, records: bytes = b"") -> None:
        """Append with acks=-1 at the leader, without keeping the answer."""
        leader = self.partition(name, index)["leader_id"]
        self.on(leader).produce(name, records or batch(count), index)

    def wait_for_end(self, broker: int, name: str, offset: int, index: int = 0) -> None:
        """Until a follower shows all records below an offset to consumers."""
        for _ in waiting(f"broker {broker} has {name}-{index} up to {offset}"):
            asked = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            fields = {"session_epoch": -1, "topics": [{"topic": name, "partitions": [asked]}]}
            answer = self.on(broker).quietly("Fetch", 11, fields)
            (found,) = answer["responses"][0]["partitions"]
            if found["high_watermark"] >= offset:
                return

    @contextlib.contextmanager
    def paused(self, broker: int) -> Iterator[None]:
        """While a broker's process stands still, for less than its session lasts."""
        self.cluster.pause(broker)
        try:
            yield
        finally:
            self.cluster.resume(broker)

    def learn(self, *stems: str) -> None:
        """Get to know the ids of topics that an earlier case has made."""
        asked = [{"name": self.name(stem)} for stem in stems]
        fields = {"topics": asked, "allow_auto_topic_creation": False}
        self.on(self.alive[0]).quietly("Metadata", 12, fields)

    def note(self, label: str, answer: Any) -> None:
        self.steps.append(Step(label, answer))


def waiting(what: str) -> Iterator[None]:
    """Rounds of waiting for something, given up after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(LOOK_AGAIN_S)
    raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}")
