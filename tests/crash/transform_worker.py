"""Consume, transform, produce, in transactions: a process made to be killed at any moment.

`python -m tests.crash.transform_worker BOOTSTRAP SLOT SOURCE OUTPUT JOURNAL`. It goes on until
stdin is closed. Everything it does is in its journal before, and its outcome after, it is done:
JSON lines with the system's monotonic time, so that the journals of several processes can be put
in order. It gives up (and is started again) on the errors that Kafka calls fatal.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

import confluent_kafka as ck

PARTITIONS = 2
GROUP = "transform"
WAIT_S = 15.0
BATCH = 10
# Quick to come back: what is tested is what happens, not how long clients wait.
QUICK = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 30,
    "retry.backoff.ms": 5,
    "socket.timeout.ms": 5000,
    # When no broker is left, librdkafka 2.15 begins anew from the bootstrap servers, and a producer
    # that was about to send offsets to a transaction then waits for ever for the broker it dropped.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Worker:
    def __init__(self, bootstrap: str, slot: str, source: str, output: str, journal: str) -> None:
        self.output = output
        self.name = f"{slot}/{os.getpid()}"
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.number = 0
        self.producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"transform-{slot}",
                "linger.ms": 0,
                **QUICK,
            }
        )
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.instance.id": slot,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                **QUICK,
            }
        )
        self.producer.init_transactions(WAIT_S)
        self.consumer.subscribe([source])

    def note(self, kind: str, **fields: Any) -> None:
        line = {"at": time.monotonic_ns(), "kind": kind, "process": self.name, **fields}
        os.write(self.journal, json.dumps(line).encode() + b"\n")

    def run(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            messages = [m for m in self.consumer.consume(BATCH, 0.1) if not m.error()]
            if messages:
                self.transform(messages)
        self.consumer.close()

    def transform(self, messages: list[Any]) -> None:
        """One transaction: each input goes to the output of its partition, the offsets with it."""
        self.number += 1
        transaction = f"{self.name}/{self.number}"
        try:
            self.producer.begin_transaction()
            for message in messages:
                self.send(message, transaction)
            ends = {m.partition(): m.offset() + 1 for m in messages}
            offsets = [ck.TopicPartition(messages[0].topic(), p, o) for p, o in ends.items()]
            group = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(offsets, group, WAIT_S)
            self.note("ending", transaction=transaction)
            self.producer.commit_transaction(WAIT_S)
            self.note("ended", transaction=transaction, outcome="ok")
        except ck.KafkaException as problem:
            error = problem.args[0]
            self.note("trouble", transaction=transaction, error=str(error))
            if not error.txn_requires_abort():
                raise
            self.producer.abort_transaction(WAIT_S)
            self.note("ended", transaction=transaction, outcome="failed")
            self.rewind()

    def send(self, message: Any, transaction: str) -> None:
        # Unique, also when the same input is transformed again after an abort.
        value = f"{message.value().decode()} {transaction}"
        partition = message.partition()
        self.note("send", transaction=transaction, partition=partition, value=value)

        def delivered(error: ck.KafkaError | None, sent: ck.Message) -> None:
            if error is None:
                self.note("sent", value=value, partition=partition, offset=sent.offset())

        self.producer.produce(self.output, value, partition=partition, on_delivery=delivered)

    def rewind(self) -> None:
        """Back to what is committed: what the aborted transaction had read comes again."""
        places = self.consumer.assignment()
        if not places:
            return
        for place in self.consumer.committed(places, WAIT_S):
            start = place.offset if place.offset >= 0 else ck.OFFSET_BEGINNING
            self.consumer.seek(ck.TopicPartition(place.topic, place.partition, start))


if __name__ == "__main__":
    Worker(*sys.argv[1:]).run()
