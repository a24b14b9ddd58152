"""One broker in one case: asks, keeps what was answered, and knows which names are only its own.

Ids that a broker draws itself (topic, producer, session) are replaced by what they stand for at
the moment an answer is kept, so that two brokers' answers can be compared as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.apache.batches import batch
from tests.apache.client import TIMEOUT_S, Closed, RawClient
from tests.apache.messages import NO_UUID, Fields
from tests.differential.normal import Names, normal

PATIENCE_S = 30.0
CLOSED = "connection closed"
TOPICS_VERSION = 7


@dataclass(frozen=True)
class Step:
    """One exchange of a case."""

    label: str
    answer: Any


class Peer:
    """`ask` keeps the answer for comparison; what only prepares the ground is not kept."""

    def __init__(self, port: int, prefix: str) -> None:
        self.port = port
        self.prefix = prefix
        self.steps: list[Step] = []
        self.names = Names(prefix)
        self.client = RawClient(port)
        self._settled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def reconnect(self) -> None:
        """Go on over a fresh connection."""
        self.client.close()
        self.client = RawClient(self.port)

    def name(self, stem: str = "topic") -> str:
        """A topic name that no other case uses, the same at both brokers."""
        return f"{self.prefix}-{stem}"

    def ask(self, api: str, version: int, fields: Fields | bytes, label: str = "") -> Fields:
        """Send, keep the answer, return it; after a closed connection an empty one."""
        answer = self._exchange(api, version, fields)
        self.keep(f"{api} v{version} {label}".strip(), api, answer)
        return answer or {}

    def ask_for_all(self, api: str, version: int, fields: Fields, within: str) -> None:
        """Ask for everything there is; of the list `within` only what is this case's is kept."""
        answer = self._exchange(api, version, fields)
        if answer:
            own = [each for each in answer[within] if own_name(each).startswith(self.prefix)]
            answer[within] = sorted(own, key=own_name)
        self.keep(f"{api} v{version} for all", api, answer)

    def ask_until(
        self,
        api: str,
        version: int,
        fields: Fields,
        settled: Callable[[Fields], bool],
        label: str = "",
    ) -> Fields:
        """Repeat until a change has come through, and keep only the last answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._exchange(api, version, fields)
            if answer is None or settled(answer) or time.monotonic() > deadline:
                self.keep(f"{api} v{version} {label}".strip(), api, answer)
                return answer or {}
            time.sleep(0.01)

    def tell(self, api: str, version: int, fields: Fields | bytes, label: str = "") -> None:
        """Send what has no answer (acks=0), then see by a later answer that none came."""
        self.client.send(api, version, fields)
        try:
            answer = self.client.ask("ApiVersions", 0, {})
            self.note(f"{api} v{version} {label}".strip(), "silence" if answer else "")
        except Closed:
            self.note(f"{api} v{version} {label}".strip(), CLOSED)
            self.reconnect()

    def send_bytes(self, data: bytes, label: str) -> None:
        """Anything at all; what is kept is whether an answer came and how long it was."""
        try:
            self.client.send_bytes(data)
            self.note(label, self.client.receive_frame()[4:].hex())
        except Closed:
            self.note(label, CLOSED)
            self.reconnect()

    def quietly(self, api: str, version: int, fields: Fields) -> Fields:
        """Ask without keeping the answer; a closed connection is the case's own fault."""
        answer = self.client.ask(api, version, fields)
        self.names.learn(answer)
        return answer

    def create_topic(
        self, stem: str = "topic", *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> str:
        """A topic that both serves and has a leader everywhere when this returns."""
        name = self.name(stem)
        topic: Fields = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        topic["configs"] = [{"name": k, "value": v} for k, v in (configs or {}).items()]
        answer = self.quietly(
            "CreateTopics", TOPICS_VERSION, {"topics": [topic], "timeout_ms": 9999}
        )
        assert answer["topics"][0]["error_code"] == 0, answer
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Until every partition answers as its leader."""
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.client.ask(
                "ListOffsets",
                1,
                {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]},
            )
            codes = [each["error_code"] for each in answer["topics"][0]["partitions"]]
            if not any(codes):
                if name not in self.names.topic_ids.values():
                    self.quietly("Metadata", 12, {"topics": [{"name": name}]})
                return
            time.sleep(0.005)
        raise AssertionError(f"{name} does not come up: {codes}")

    def produce_plain(self, topic: str) -> None:
        """One record, whatever it is."""
        self.produce(topic, batch(1))

    def settle(self) -> None:
        """Until a change made just now is seen everywhere: a topic made after it is served."""
        self._settled += 1
        self.create_topic(f"settled-{self._settled}")

    def wait_until_gone(self, name: str) -> None:
        """Until a deleted topic is unknown to Metadata and to the log."""
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        parts = [{"partition_index": 0, "timestamp": -1}]
        offsets = {"replica_id": -1, "topics": [{"name": name, "partitions": parts}]}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            code = self.client.ask("Metadata", 12, asked)["topics"][0]["error_code"]
            log = self.client.ask("ListOffsets", 1, offsets)["topics"][0]["partitions"][0]
            if code == 3 and log["error_code"] == 3:
                return
            time.sleep(0.005)

    def topic_id(self, name: str) -> bytes:
        """The id this broker gave to a topic."""
        found = [each for each, known in self.names.topic_ids.items() if known == name]
        return found[0] if found else NO_UUID

    def produce(self, topic: str, records: bytes, partition: int = 0) -> Fields:
        """Append without keeping the answer."""
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        answer = self.quietly("Produce", 9, {"acks": -1, "timeout_ms": 5000, "topic_data": data})
        result: Fields = answer["responses"][0]["partition_responses"][0]
        assert result["error_code"] == 0, result
        return result

    def _exchange(self, api: str, version: int, fields: Fields | bytes) -> Fields | None:
        try:
            self.client.send(api, version, fields)
            frame = self.client.receive_frame()
        except Closed:
            self.reconnect()
            return None
        except TimeoutError:
            self.reconnect()
            return {"silence": f"no answer within {TIMEOUT_S} s"}
        try:
            return self.client.decode(api, version, frame)
        except ValueError as error:
            return {"undecodable": str(error), "bytes": frame.hex()}

    def keep(self, label: str, api: str, answer: Fields | None) -> None:
        """Keep an answer for comparison."""
        if answer is None:
            self.note(label, CLOSED)
        else:
            self.names.learn(answer)
            self.note(label, normal(api, answer, self.names))

    def note(self, label: str, answer: Any) -> None:
        """Keep anything for comparison."""
        self.steps.append(Step(label, answer))


def own_name(item: Fields) -> str:
    """What a topic or resource is called in any API."""
    return str(item.get("name") or item.get("topic_name") or item.get("resource_name") or "")
