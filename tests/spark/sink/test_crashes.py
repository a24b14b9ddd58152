"""The sink under crashes: whatever is killed and wherever, every row is out once in the end.

One query goes through many rounds. In each of them more events come in, one thing goes wrong at one
point (faultpoints.py), the query fails, and is started again from its checkpoint: so a batch may be
hit more than once. Then all is counted by the history checker.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker
from ottla.testing import broker as start_broker
from tests import needs
from tests.spark.sink import plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

LONG = pytest.mark.long
POINTS = [
    "task.begun", "task.staged", "commit.begun", "commit.sent", "commit.before-end",
    "commit.after-end",
]  # fmt: skip
EVERYTHING = list(itertools.product(POINTS, ["kill", "raise"]))
# Each point once, each action at every other; a long run draws from all.
EVERY_POINT = [(point, ("kill", "raise")[number % 2]) for number, point in enumerate(POINTS)]
EACH = 120  # events per round: a batch or two


class Rounds:
    """One query, run again and again."""

    def __init__(
        self, spark: SparkSession, broker: Broker, name: str, topic: str, checkpoint: Path
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.name = name
        self.topic = topic
        self.out = f"{topic}-out"
        self.checkpoint = str(checkpoint)
        self.given: list[plans.Event] = []

    def more(self, count: int = EACH) -> None:
        """New events for the next run."""
        fresh = plans.events(len(self.given), count)
        self.given += fresh
        plans.send(self.broker, self.topic, fresh)
        if self.name in ("joined", "outer"):
            plans.send(self.broker, f"{self.topic}-orders", plans.orders_of(fresh))

    def close(self) -> None:
        """Let the watermark pass everything."""
        plans.close(self.broker, self.topic)
        if self.name in ("joined", "outer"):
            plans.close(self.broker, f"{self.topic}-orders")

    def run(self, limit: int = EACH, **options: str) -> Exception | None:
        """Run to the end of what is there, or to the query's failure."""
        servers = self.broker.bootstrap_servers
        rows = plans.plan(self.spark, servers, self.name, self.topic, limit)
        query = plans.start(rows, servers, self.out, self.checkpoint, **options)
        try:
            assert query.awaitTermination(120), "the query did not end"
        except AssertionError:
            raise
        except Exception as problem:
            return problem
        finally:
            query.stop()
        return None

    def crash(self, faults: Path, point: str, action: str, **options: str) -> None:
        """A run that fails at the point."""
        self.more()
        (faults / f"{point}.reached").unlink(missing_ok=True)
        (faults / point).write_text(action)
        problem = self.run(**options)
        assert (faults / f"{point}.reached").exists(), (
            f"{point} was not reached: {str(problem)[:2000]}"
        )
        assert problem is not None, f"the query survived {point} {action}"

    def finish(self) -> None:
        """The last run, and the count."""
        if self.name != "stateless":
            self.close()
        problem = self.run(plans.ALL)
        assert problem is None, str(problem)[:2000]
        wanted = plans.expected(self.name, self.given)
        plans.assert_exactly_once(self.broker, self.out, wanted)


def rounds_of(seed: int, some: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """In an order of its own for each seed; many of them with OTTLA_LONG=1."""
    chance = random.Random(seed)
    chosen = list(some)
    if needs.LONG:
        chosen = [chance.choice(EVERYTHING) for _ in range(40)]
    chance.shuffle(chosen)
    return chosen


def test_stateless_through_every_crash_point(
    spark: SparkSession, broker: Broker, topic: str, faults: Path, tmp_path: Path
) -> None:
    """A Python process that dies or fails anywhere costs no row, doubles none, keeps the order."""
    rounds = Rounds(spark, broker, "stateless", topic, tmp_path)
    for number, (point, action) in enumerate(rounds_of(1, EVERY_POINT)):
        carrier = "directory" if number % 2 else "auto"
        rounds.crash(faults, point, action, staging=carrier)
    rounds.finish()
    plans.assert_ordered(broker, rounds.out)


@pytest.mark.parametrize("name", ["windows", pytest.param("joined", marks=LONG), "outer"])
def test_stateful_plans_through_crashes(
    spark: SparkSession, broker: Broker, topic: str, faults: Path, tmp_path: Path, name: str
) -> None:
    """A windowed count and joins (null-padded rows too) come out once, through crashes."""
    plans.send(broker, f"{topic}-orders", [])
    rounds = Rounds(spark, broker, name, topic, tmp_path)
    rounds.more()  # so that there is state before the first crash
    assert rounds.run() is None
    for point, action in rounds_of(
        2, [("commit.after-end", "kill"), ("commit.before-end", "kill")]
    ):
        rounds.crash(faults, point, action)
    rounds.finish()


@pytest.mark.parametrize(
    "point", ["task.begun", pytest.param("commit.sent", marks=LONG), "commit.before-end"]
)
def test_a_broker_that_is_killed_and_comes_back(
    spark: SparkSession, topic: str, faults: Path, tmp_path: Path, point: str
) -> None:
    """The query rides through a broker's crash while tasks stage and while the driver commits."""
    with start_broker(num_partitions=plans.PARTITIONS) as own:
        rounds = Rounds(spark, own, "stateless", topic, tmp_path)
        rounds.more()
        (faults / point).write_text("wait 2")

        def restart() -> None:
            while not (faults / f"{point}.reached").exists():
                time.sleep(0.01)
            own.restart(kill=True)

        other = threading.Thread(target=restart, daemon=True)
        other.start()
        staging = "topic" if point == "task.begun" else "auto"
        problem = rounds.run(staging=staging)
        other.join(60)
        assert problem is None, str(problem)[:2000]
        rounds.finish()
