"""Transactions while connections are cut and brokers killed, judged by the checker."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ottla import Producer
from ottla.testing.history import History, Outcome, check
from tests.client.cutting import cut_off
from tests.client.reading import make_topic, record_all
from tests.live import Server, free_port

WAIT_S = 60
TOPIC = "transactions"
SETTINGS = {"transaction.state.log.num.partitions": 2}
QUICK = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 10}


class Workload:
    """Two transactional producers that commit most of their transactions and abort the rest."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.seed = seed
        self.history = History()
        self.stop = threading.Event()
        self.ended: Counter[bool] = Counter()
        self.problems: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in (0, 1)]
        for thread in self.threads:
            thread.start()

    def _run(self, number: int) -> None:
        chance = random.Random(self.seed * 10 + number)
        try:
            with Producer(
                bootstrap_servers=self.bootstrap,
                transactional_id=f"id-{number}",
                batch_size=500,
                linger_ms=1,
                **QUICK,
            ) as producer:
                producer.init_transactions()
                turn = 0
                while not (self.stop.is_set() and self._enough()):
                    turn += 1
                    self._transaction(producer, number, turn, chance)
        except BaseException as problem:
            self.problems.append(problem)
            raise

    def _enough(self) -> bool:
        """Whether the run has seen enough to mean something; on a slow machine it goes on."""
        return self.ended[True] > 20 and self.ended[False] > 5

    def _transaction(
        self, producer: Producer[Any, Any], number: int, turn: int, chance: random.Random
    ) -> None:
        name = (number, turn)
        producer.begin_transaction()
        for index in range(chance.randint(1, 30)):
            self._send(producer, name, f"{number}-{turn}-{index}", chance.randint(0, 1))
        commit = chance.random() < 0.7
        if commit:
            producer.flush()
        self.history.ending(name, commit=commit)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        self.history.ended(name, commit=commit)
        self.ended[commit] += 1

    def _send(
        self, producer: Producer[Any, Any], name: tuple[int, int], value: str, partition: int
    ) -> None:
        def delivered(metadata: Any, error: Exception | None) -> None:
            self.history.sent(
                name[0],
                partition,
                value,
                offset=None if metadata is None else metadata.offset,
                outcome=Outcome.OK if error is None else Outcome.UNKNOWN,
                transaction=name,
            )

        producer.send(TOPIC, value.encode(), partition=partition, on_delivery=delivered)

    def judge(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert not self.problems
        record_all(self.history, self.bootstrap, TOPIC)
        # Between two committed records there are markers and aborted ones: a reader may skip.
        report = check(self.history, may_skip=True)
        assert report, str(report)
        assert report.unseen == 0, str(report)


def test_transactions_survive_cut_connections(tmp_path: Path) -> None:
    """Lost answers of Produce, EndTxn and all others: committed is there once, aborted never."""
    outside = free_port()
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
    with (
        Server(tmp_path / "data", settings=settings) as server,
        cut_off(outside, server.port, TOPIC, partitions=2, seed=1, answers_between_cuts=12) as (
            bootstrap,
            proxy,
        ),
    ):
        proxy.quiet.clear()
        work = Workload(bootstrap, 1)
        time.sleep(2.5)
        proxy.quiet.set()
        work.judge()
        assert proxy.cuts > 5


def test_transactions_survive_killed_brokers(tmp_path: Path) -> None:
    """SIGKILL and restart, three times in the middle of it."""
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topic(server.bootstrap, TOPIC, partitions=2)
        work = Workload(server.bootstrap, 2)
        for _ in range(3):
            time.sleep(0.6)
            server.kill()
            server.start()
        time.sleep(0.5)
        work.judge()
