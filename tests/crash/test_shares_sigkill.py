"""A queue under SIGKILL: the members of a share group, and their broker, on real processes.

Workers with Java's share consumer, confluent-kafka's and ours process one topic in one share group,
while they and the broker are killed and started again. In the end the group is through with the
topic, and the checker of queues finds nothing in what they saw.
"""

from __future__ import annotations

import bisect
import json
import random
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

import ottla
from ottla.testing.history import Outcome
from ottla.testing.queue_history import Delivery, QueueHistory, Settled, check
from tests import needs
from tests.apache import java
from tests.compat.test_confluent import make_topic
from tests.compat.test_share_consumers import from_earliest
from tests.crash.share_worker import GROUP, INVALID_RECORD_STATE, RELEASE
from tests.crash.transform_worker import QUICK
from tests.live import Server, environment_with
from tests.waiting import eventually

ROUNDS = needs.rounds(4, 60)  # one kills a worker, the next one the broker
RECORDS = 60  # of each round: the load follows the rounds, not the machine
TOPIC, PARTITIONS = "queue", 2
LOCK_S = 2.0
ATTEMPTS_MAX = 10
END_S = 60.0
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.delivery.count.limit": ATTEMPTS_MAX,
    "group.share.min.session.timeout.ms": 3000,
    "group.share.session.timeout.ms": 3000,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
}
Log = dict[int, dict[int, str]]
JAVA = "java"
PROGRAM = Path(__file__).with_name("ShareWorker.java")


class Workers:
    """One process for each client, started again when it was killed."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed_s: dict[int, float] = {}  # by process id

    def start(self, client: str) -> None:
        journal = self.folder / f"{client}.jsonl"
        with (self.folder / f"{client}.txt").open("ab") as errors:
            self.processes[client] = subprocess.Popen(
                [*self.command(client), self.bootstrap, client, TOPIC, str(journal)],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=environment_with({}),
            )

    def command(self, client: str) -> list[str]:
        if client == JAVA:
            return java.program_command(PROGRAM)
        return [sys.executable, "-m", "tests.crash.share_worker"]

    def kill(self, client: str) -> None:
        process = self.processes.pop(client)
        self.killed_s[process.pid] = time.monotonic()
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def check_alive(self) -> None:
        for client, process in self.processes.items():
            said = (self.folder / f"{client}.txt").read_text()
            assert process.poll() is None, f"{client} ended by itself\n{said[-2000:]}"

    def end(self) -> None:
        for client in list(self.processes):
            self.kill(client)

    def journal(self) -> list[dict[str, Any]]:
        """All that every process wrote, in order; the last line of a killed one may be torn."""
        lines = []
        for path in self.folder.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    continue
        return sorted(lines, key=lambda line: float(line["at"]))

    def deliveries(self) -> Counter[str]:
        """How many records each client has been given."""
        return Counter(
            {
                path.stem: sum(
                    len(line["records"])
                    for line in map(json.loads, path.read_text().splitlines(keepends=False)[:-1])
                    if line["kind"] == "given"
                )
                for path in self.folder.glob("*.jsonl")
            }
        )


class Feeder:
    """Writes the queue; knows what is in it."""

    def __init__(self, bootstrap: str) -> None:
        self.log: Log = {number: {} for number in range(PARTITIONS)}
        self.count = 0
        self.producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,  # librdkafka's share consumer is given whole batches
                **QUICK,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            value = f"v{self.count}"
            place = self.count % PARTITIONS
            done = partial(self.written, value)
            self.producer.produce(TOPIC, value.encode(), partition=place, on_delivery=done)
            self.count += 1
        self.producer.poll(0)

    def written(self, value: str, error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is None, error
        self.log[message.partition()][message.offset()] = value

    def finish(self) -> None:
        assert self.producer.flush(END_S) == 0
        assert sum(map(len, self.log.values())) == self.count


class Broker:
    """The broker and the moments at which it was killed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.killed_s: list[float] = []

    def kill(self) -> None:
        # Before the signal and after: what happens between belongs to neither life.
        self.killed_s.append(time.monotonic())
        self.server.kill()
        self.killed_s.append(time.monotonic())
        self.server.start()

    def life(self, start_s: float, end_s: float) -> int | None:
        """Which process answered between these times; None: more than one may have."""
        first, last = (bisect.bisect(self.killed_s, each) for each in (start_s, end_s))
        return first if first == last else None


def history_of(workers: Workers, broker: Broker) -> QueueHistory:
    """What the checker wants to know of the journals."""
    history = QueueHistory()
    held: dict[tuple[int, int], dict[tuple[int, int], Delivery]] = {}
    saying: dict[tuple[int, int], dict[str, Any]] = {}
    for line in workers.journal():
        turn = line["pid"], line["number"]
        if line["kind"] == "given":
            asked_s, given_s = line["asked"], line["at"]
            life = broker.life(asked_s, given_s)
            end_s = min(
                asked_s + LOCK_S,
                workers.killed_s.get(line["pid"], given_s + LOCK_S),
                *(each for each in broker.killed_s if each > asked_s),
            )
            held[turn] = {
                (place, offset): history.given(
                    Delivery(
                        member=line["pid"],
                        partition=place,
                        offset=offset,
                        value=value,
                        attempt=attempt,
                        asked_s=asked_s,
                        given_s=given_s,
                        end_s=end_s,
                        # There is one broker, so none that has been replaced; but no life has locks
                        # of the one before it.
                        certain=("across", *turn) if life is None else life,
                    )
                )
                for place, offset, value, attempt in line["records"]
            }
        elif line["kind"] == "says":
            saying[turn] = line
            for place, offset, kind in line["records"]:
                delivery = held[turn][place, offset]
                delivery.end_s = min(delivery.end_s, line["at"])
                if kind != RELEASE:
                    history.answered(Settled(turn, place, offset, Outcome.UNKNOWN, line["at"]))
        else:
            said, errors = saying[turn], dict(line["errors"])
            # A client that lost its connection may have said it twice: then it may have an effect.
            once = broker.life(said["at"], line["at"]) is not None
            for place, offset, kind in said["records"]:
                error = errors.get(place, -1)
                if kind == RELEASE or (error and not (error == INVALID_RECORD_STATE and once)):
                    continue
                outcome = Outcome.FAILED if error else Outcome.OK
                history.answered(Settled(turn, place, offset, outcome, line["at"]))
    return history


def wait_for_deliveries(workers: Workers, feeder: Feeder, client: str, count: int) -> None:
    """Until one client was given more records; the other ones may take what there is."""
    wanted = workers.deliveries()[client] + count

    def given() -> bool:
        workers.check_alive()
        if not workers.deliveries()[client] >= wanted:
            feeder.send(PARTITIONS)
            return False
        return True

    eventually(given, f"{client} is given nothing", END_S)


def wait_until_done(workers: Workers, feeder: Feeder) -> None:
    """Until the group begins behind the last record of each partition."""
    ends = {place: max(log) + 1 for place, log in feeder.log.items()}
    starts: dict[int, int] = {}
    with ottla.Admin(bootstrap_servers=workers.bootstrap) as admin:

        def done() -> bool:
            workers.check_alive()
            found = admin.list_share_group_offsets({GROUP: None})[GROUP]
            starts.update(
                {place.partition: at.start_offset for place, at in found.items() if at is not None}
            )
            return starts == ends

        try:
            eventually(done, "the group is through with the topic", END_S)
        except AssertionError as late:
            raise AssertionError(f"{late}: {starts} of {ends}") from None


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "clients",
    [
        pytest.param(("ottla", "confluent"), id="ours-confluent"),
        pytest.param((JAVA, "ottla"), id="java-ours", marks=pytest.mark.apache),
    ],
)
def test_a_queue_under_sigkill(tmp_path: Path, clients: tuple[str, ...]) -> None:
    """Every record is acknowledged, or delivered again until it is, whoever was killed when.

    None is held for ever, and none is delivered again after an acknowledgement was answered, also
    by a broker that was killed when all was done.
    """
    if JAVA in clients:
        needs.apache()
    chance = random.Random(14)
    server = Server(tmp_path / "data", settings=SETTINGS).start()
    broker, workers = Broker(server), Workers(server.bootstrap, tmp_path)
    feeder = Feeder(server.bootstrap)
    try:
        make_topic(server.bootstrap, TOPIC, PARTITIONS)
        from_earliest(server.bootstrap, GROUP)
        for client in clients:
            workers.start(client)
        for round_ in range(ROUNDS):
            victim = clients[round_ // 2 % len(clients)]
            feeder.send(RECORDS)
            wait_for_deliveries(workers, feeder, victim, chance.randint(1, RECORDS // 4))
            if round_ % 2:
                broker.kill()
            else:
                workers.kill(victim)
                workers.start(victim)
        feeder.finish()
        wait_until_done(workers, feeder)
        broker.kill()
        feeder.send(PARTITIONS)
        feeder.finish()
        wait_until_done(workers, feeder)
    finally:
        workers.end()
        server.kill()
    report = check(history_of(workers, broker), feeder.log, attempts_max=ATTEMPTS_MAX)
    assert not report.faults, str(report)
    assert report.deliveries >= report.settled > feeder.count / 2
    assert all(workers.deliveries()[client] for client in clients)
