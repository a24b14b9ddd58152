"""Process records of a share group: a process made to be killed at any moment.

`python -m tests.crash.share_worker BOOTSTRAP CLIENT TOPIC JOURNAL`, where CLIENT is `ottla` or
`confluent`. It goes on until stdin is closed. Its journal has a JSON line for each poll that
returned records, one before these are acknowledged and one after, with the system's monotonic
time, so that the journals of several processes can be put in order.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from typing import Any, Protocol

import confluent_kafka as ck

import ottla
from ottla.client.errors import KafkaError
from tests.crash.transform_worker import QUICK

GROUP = "workers"
POLL_S = 0.1
WAIT_S = 5.0
BATCH = 10
WORK_S_MAX = 0.05  # held for so long: some are killed with records
INVALID_RECORD_STATE = 121
ACCEPT, RELEASE, REJECT = 1, 2, 3
# What is said of a record, and how often.
KINDS = {ACCEPT: 86, RELEASE: 9, REJECT: 5}
Records = dict[tuple[int, int], tuple[str, int]]  # by partition and offset: value, delivery count
Said = dict[tuple[int, int], int]


class Client(Protocol):
    """A share consumer in explicit mode."""

    def poll(self) -> Records:
        """What was delivered."""

    def say(self, said: Said) -> dict[int, int]:
        """The error codes of partitions; -1 where nobody knows. A partition may be missing."""

    def close(self) -> None:
        """Leave the group."""


class Ours:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.held: dict[tuple[int, int], Any] = {}
        self.consumer: ottla.ShareConsumer[Any, bytes] = ottla.ShareConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=BATCH,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=30,
            retry_backoff_ms=5,
            request_timeout_ms=int(WAIT_S * 1000),
        )

    def poll(self) -> Records:
        records = self.consumer.poll(POLL_S * 1000)
        self.held = {(each.partition, each.offset): each for each in records}
        return {
            place: (each.value.decode(), each.delivery_count) for place, each in self.held.items()
        }

    def say(self, said: Said) -> dict[int, int]:
        for place, kind in said.items():
            self.consumer.acknowledge(self.held[place], ottla.AcknowledgeType(kind))
        try:
            outcomes = self.consumer.commit_sync()
        except KafkaError:
            return {}
        return {
            each.partition: 0 if problem is None else getattr(problem, "errno", -1)
            for each, problem in outcomes.items()
        }

    def close(self) -> None:
        self.consumer.close()


class Confluent:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.consumer = ck.ShareConsumer(  # type: ignore[attr-defined]
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": BATCH,
                **QUICK,
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> Records:
        try:
            messages = [each for each in self.consumer.poll(timeout=POLL_S) if not each.error()]
        except ck.KafkaException:
            return {}  # no broker is there
        return {
            (each.partition(), each.offset()): (each.value().decode(), each.delivery_count())
            for each in messages
        }

    def say(self, said: Said) -> dict[int, int]:
        for (partition, offset), kind in said.items():
            self.consumer.acknowledge_offset(self.topic, partition, offset, kind)
        try:
            outcomes = self.consumer.commit_sync(timeout=WAIT_S)
        except ck.KafkaException:
            return {}
        return {
            each.partition: 0 if problem is None else problem.args[0].code()
            for each, problem in outcomes.items()
        }

    def close(self) -> None:
        self.consumer.close()


class Worker:
    def __init__(self, client: Client, journal: str) -> None:
        self.client = client
        self.chance = random.Random(os.getpid())
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.number = 0
        # A fetch may be under way while a poll returns what the one before it has brought: what a
        # poll returns was asked for after the last poll but one that returned records.
        self.asked = [time.monotonic(), time.monotonic()]

    def note(self, kind: str, **fields: Any) -> None:
        line = {"at": time.monotonic(), "kind": kind, "pid": os.getpid(), **fields}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def run(self) -> None:
        try:
            while not select.select([sys.stdin], [], [], 0)[0]:
                records = self.client.poll()
                if records:
                    self.process(records)
        finally:
            self.client.close()

    def process(self, records: Records) -> None:
        self.number += 1
        self.note(
            "given",
            number=self.number,
            asked=self.asked.pop(0),
            records=[[*place, *record] for place, record in records.items()],
        )
        self.asked.append(time.monotonic())
        time.sleep(self.chance.uniform(0, WORK_S_MAX))
        kinds = self.chance.choices(list(KINDS), list(KINDS.values()), k=len(records))
        said = dict(zip(records, kinds, strict=True))
        self.note(
            "says", number=self.number, records=[[*place, kind] for place, kind in said.items()]
        )
        errors = self.client.say(said)
        self.note("said", number=self.number, errors=list(errors.items()))


CLIENTS = {"ottla": Ours, "confluent": Confluent}

if __name__ == "__main__":
    _, bootstrap, client, topic, journal = sys.argv
    Worker(CLIENTS[client](bootstrap, topic), journal).run()
