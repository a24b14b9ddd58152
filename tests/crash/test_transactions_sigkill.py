"""Exactly once under SIGKILL: consume-transform-produce in transactions, on real processes.

Workers read a topic and write what they read to another, in transactions with their offsets, while
they and the server are killed at random and started again. In the end the output holds each input
once for readers of committed records, and the checker finds nothing in what everybody saw.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from ottla.testing.history import History, Outcome, check
from tests import needs
from tests.apache.batches import TRANSACTIONAL, batch
from tests.apache.client import RawClient
from tests.compat.test_confluent import make_topic
from tests.compat.test_transactions import read_all
from tests.crash.transform_worker import GROUP, PARTITIONS, QUICK
from tests.live import Server, environment_with

ROUNDS = needs.rounds(12, 300)
RECORDS = 60  # of input for each round: the load follows the rounds, not the machine
SLOTS = ("a", "b")
SOURCE, OUTPUT = "source", "output"
COMMAND = (sys.executable, "-m", "tests.crash.transform_worker")
END_S = 120.0
OPEN_IDS = 1000
BUSY = (14, 15, 16, 51)
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Workers:
    """One process per slot, started again whenever it ends."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = 0

    def keep_up(self) -> None:
        for slot in SLOTS:
            process = self.processes.get(slot)
            if process is None or process.poll() is not None:
                self.start(slot)

    def start(self, slot: str) -> None:
        self.starts += 1
        journal = self.folder / f"{slot}.jsonl"
        with (self.folder / f"{slot}.txt").open("ab") as errors:
            self.processes[slot] = subprocess.Popen(
                [*COMMAND, self.bootstrap, slot, SOURCE, OUTPUT, str(journal)],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=environment_with({}),
            )

    def kill(self, slot: str) -> None:
        if slot in self.processes:
            process = self.processes.pop(slot)
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def journal(self) -> list[dict[str, Any]]:
        """All that every process wrote, in order; the last line of a killed one may be torn."""
        lines = []
        for path in self.folder.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    continue
        return sorted(lines, key=lambda line: line["at"])


class Reader(threading.Thread):
    """Reads the output all the while, as a reader of committed records."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.polls: list[tuple[int, int, int, str]] = []
        self.rounds = 0
        self.stop = threading.Event()
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **QUICK,
            }
        )
        self.consumer.assign([ck.TopicPartition(OUTPUT, p, 0) for p in range(PARTITIONS)])

    def run(self) -> None:
        while not self.stop.is_set():
            messages: list[Any] = self.consumer.consume(100, 0.1)
            for message in messages:
                if message.error() is None:
                    place = (message.partition(), message.offset(), message.value().decode())
                    self.polls.append((time.monotonic_ns(), *place))
            self.rounds += 1

    def read_on(self) -> None:
        """Poll a few times more, for what should not be there."""
        wanted = self.rounds + 3
        wait_for(lambda: self.rounds >= wanted)


class Feeder(threading.Thread):
    """Writes the input, a little all the time; knows what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.acknowledged: list[int] = []
        self.allowed = 0
        self.producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, **QUICK}
        )

    def run(self) -> None:
        number = 0
        while not self.stop.is_set() or number < self.allowed:
            if number >= self.allowed:
                self.producer.poll(0.01)
                continue
            self.producer.produce(
                SOURCE,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=partial(self.delivered, number),
            )
            number += 1
            self.producer.poll(0.002)
        assert self.producer.flush(END_S) == 0

    def feed(self, chance: random.Random) -> None:
        """Write more input, and return amid that: when some of it has been acknowledged."""
        wanted = self.allowed + chance.randint(1, RECORDS)
        self.allowed += RECORDS
        deadline = time.monotonic() + END_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "nothing is acknowledged"
            time.sleep(0.002)

    def delivered(self, number: int, error: ck.KafkaError | None, _: ck.Message) -> None:
        assert error is None, error
        self.acknowledged.append(number)


def history_of(journal: list[dict[str, Any]], reader: Reader) -> History:
    """What the checker wants to know, in the order in which it happened."""
    acknowledged = {
        (e["partition"], e["value"]): e["offset"] for e in journal if e["kind"] == "sent"
    }
    events: list[tuple[int, dict[str, Any]]] = [(event["at"], event) for event in journal]
    events += [
        (at, {"kind": "poll", "partition": p, "offset": o, "value": v})
        for at, p, o, v in reader.polls
    ]
    history = History()
    for _, event in sorted(events, key=lambda pair: pair[0]):
        if event["kind"] == "send":
            offset = acknowledged.get((event["partition"], event["value"]))
            history.sent(
                event["process"],
                event["partition"],
                event["value"],
                offset=offset,
                outcome=Outcome.UNKNOWN if offset is None else Outcome.OK,
                transaction=event["transaction"],
            )
        elif event["kind"] == "ending":
            history.ending(event["transaction"], commit=True)
        elif event["kind"] == "ended":
            commit = event["outcome"] == "ok"
            history.ended(event["transaction"], commit=commit, outcome=Outcome.OK)
        elif event["kind"] == "poll":
            history.polled("reader", event["partition"], [(event["offset"], event["value"])])
    return history


def wait_until_done(bootstrap: str, workers: Workers) -> None:
    """Until the group has committed all of the input."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **QUICK})
    places = [ck.TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
    ends = {p.partition: consumer.get_watermark_offsets(p, END_S)[1] for p in places}
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        workers.keep_up()
        committed = {p.partition: p.offset for p in consumer.committed(places, END_S)}
        if committed == ends:
            consumer.close()
            return
        time.sleep(0.05)
    raise AssertionError(f"only {committed} of {ends} is done")


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_S
    while not met() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_exactly_once_under_sigkill(tmp_path: Path) -> None:
    """Each input is in the output once, whoever was killed when."""
    chance = random.Random(int(os.environ.get("OTTLA_SEED", "4")))
    server = Server(tmp_path / "data", settings=SETTINGS).start()
    make_topic(server.bootstrap, SOURCE, PARTITIONS)
    make_topic(server.bootstrap, OUTPUT, PARTITIONS)
    workers = Workers(server.bootstrap, tmp_path)
    reader, feeder = Reader(server.bootstrap), Feeder(server.bootstrap)
    try:
        feeder.start()
        reader.start()
        workers.keep_up()
        feeder.feed(chance)
        wait_for(lambda: len(reader.polls) > 0)
        for round_ in range(ROUNDS):
            feeder.feed(chance)
            if round_ % 3 == 2:
                server.kill()
                server.start()
            else:
                workers.kill(chance.choice(SLOTS))
            workers.keep_up()
        feeder.stop.set()
        feeder.join(END_S)
        wait_until_done(server.bootstrap, workers)
        expected = sorted(feeder.acknowledged)
        wait_for(lambda: len(reader.polls) >= len(expected))
        reader.read_on()
    finally:
        reader.stop.set()
        feeder.stop.set()
        for slot in SLOTS:
            workers.kill(slot)
        reader.join(END_S)
        server.kill()
    found = sorted(int(value.split()[0]) for _, _, _, value in reader.polls)
    assert found == expected, f"{len(found)} of {len(expected)}\n{server.errors()[-2000:]}"
    assert len(expected) == RECORDS * (ROUNDS + 1)
    report = check(history_of(workers.journal(), reader))
    assert report, str(report)


def test_a_thousand_open_transactions_survive(tmp_path: Path) -> None:
    """After SIGKILL and a start every one of them can be committed."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topic(server.bootstrap, OUTPUT, 1)
        names = [f"id-{number}" for number in range(OPEN_IDS)]
        with RawClient(server.port) as client:
            ids = open_all(client, names)
        server.kill()
        server.start()
        with RawClient(server.port) as client:
            end_all(client, ids)
        found = read_all(server.bootstrap, OUTPUT)
        assert sorted(found[0]) == sorted(b"value-0" for _ in names)


def ask_all(client: RawClient, api: str, version: int, asked: list[dict[str, Any]]) -> list[Any]:
    """Many requests on one connection, a hundred at a time under way."""
    answers = []
    for start in range(0, len(asked), 100):
        some = asked[start : start + 100]
        for fields in some:
            client.send(api, version, fields)
        answers += [client.receive(api, version) for _ in some]
    return answers


def open_all(client: RawClient, names: list[str]) -> dict[str, tuple[int, int]]:
    """A transaction with one record under each name."""
    client.ask("FindCoordinator", 4, {"coordinator_keys": names[:1], "key_type": 1})
    asked = [{"transactional_id": name, "transaction_timeout_ms": 60_000} for name in names]
    answers = ask_all(client, "InitProducerId", 4, asked)
    ids = {
        name: (answer["producer_id"], answer["producer_epoch"])
        for name, answer in zip(names, answers, strict=True)
    }
    assert not any(answer["error_code"] for answer in answers)
    writes = []
    for name, (producer_id, epoch) in ids.items():
        records = batch(
            1,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        data = [{"name": OUTPUT, "partition_data": [{"index": 0, "records": records}]}]
        writes.append(
            {"transactional_id": name, "acks": -1, "timeout_ms": 5000, "topic_data": data}
        )
    for answer in ask_all(client, "Produce", 12, writes):
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return ids


def end_all(client: RawClient, ids: dict[str, tuple[int, int]]) -> None:
    left = dict(ids)
    while left:
        asked = [
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "committed": True,
            }
            for name, (producer_id, epoch) in left.items()
        ]
        for name, answer in zip(list(left), ask_all(client, "EndTxn", 5, asked), strict=True):
            assert answer["error_code"] in (0, *BUSY)
            if answer["error_code"] == 0:
                del left[name]
