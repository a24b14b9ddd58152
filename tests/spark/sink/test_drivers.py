"""Drivers that are killed, other numbers of cores, real executors: the sink out in the world."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker
from tests import needs
from tests.spark.sink import plans
from tests.spark.sink.driver import Driver

if TYPE_CHECKING:
    from ottla.spark.standalone import Standalone

pytestmark = [pytest.mark.timeout(1200), pytest.mark.spark, pytest.mark.xdist_group("spark")]

LONG = bool(os.environ.get("OTTLA_LONG"))
# The outer join through crashes of the driver is for the long run.
PLANS = ["stateless", "windows", "outer"] if LONG else ["stateless", "windows"]
COUNT = 150
STRAGGLER_S = 600  # longer than `Driver.wait_for` waits


class Job:
    """Queries of all plans, over inputs of their own, and what they must write."""

    def __init__(self, broker: Broker, topic: str, home: Path, names: list[str]) -> None:
        self.broker = broker
        self.home = home
        self.faults = home / "faults"
        self.given: dict[str, list[plans.Event]] = {name: [] for name in names}
        self.topic = topic
        self.queries = [
            (name, f"{topic}-{name}", f"{topic}-{name}-out", str(home / f"checkpoint-{name}"))
            for name in names
        ]

    def more(self, count: int = COUNT, *, last: bool = False) -> None:
        """New events for every query; after the `last` every window and every wait ends."""
        for name, topic, _, _ in self.queries:
            fresh = plans.events(len(self.given[name]), count)
            self.given[name] += fresh
            plans.send(self.broker, topic, fresh)
            if name == "outer":
                plans.send(self.broker, f"{topic}-orders", plans.orders_of(fresh))
            if last and name != "stateless":
                plans.close(self.broker, topic)
            if last and name == "outer":
                plans.close(self.broker, f"{topic}-orders")

    def driver(self, master: str, **more: object) -> Driver:
        return Driver(
            self.broker.bootstrap_servers,
            self.queries,
            master=master,
            home=self.home,
            faults=self.faults,
            **more,
        )

    def check(self) -> None:
        for name, _, out, _ in self.queries:
            wanted = plans.expected(name, self.given[name])
            plans.assert_exactly_once(self.broker, out, wanted)
            if name == "stateless":
                plans.assert_ordered(self.broker, out)


def test_killed_drivers_and_other_cores(broker: Broker, topic: str, tmp_path: Path) -> None:
    """SIGKILL to the driver just before and just after a commit is decided; then other cores."""
    needs.java()
    job = Job(broker, topic, tmp_path, PLANS)
    job.more()
    for master, point in [("local[2,4]", "commit.before-end"), ("local[1,4]", "commit.after-end")]:
        job.faults.mkdir(exist_ok=True)
        (job.faults / point).write_text("wait 1")
        with job.driver(master) as driver:
            driver.wait_for(point)
            driver.kill()
            job.more(60)
            time.sleep(1)  # an orphaned worker may go on now
    job.more(60, last=True)
    with job.driver("local[3,4]", limit=plans.ALL) as driver:
        driver.finish()
    job.check()


@pytest.mark.skipif(not LONG, reason="many rounds: OTTLA_LONG=1")
@pytest.mark.parametrize("seed", range(12))
def test_drivers_killed_at_any_moment(
    broker: Broker, topic: str, tmp_path: Path, seed: int
) -> None:
    """SIGKILL to drivers at moments that chance chooses, five times in a row."""
    needs.java()
    chance = random.Random(seed)
    job = Job(broker, topic, tmp_path, PLANS)
    for _ in range(5):
        job.more()
        staging = chance.choice(["auto", "directory", "topic"])
        with job.driver(f"local[{chance.randint(1, 3)},4]", options={"staging": staging}) as driver:
            time.sleep(12 + chance.uniform(0, 10))
            driver.kill()
    job.more(60, last=True)
    with job.driver("local[2,4]", limit=plans.ALL) as driver:
        driver.finish()
    job.check()


@pytest.mark.parametrize("name", PLANS if LONG else ["stateless"])
def test_speculation_and_a_killed_executor(
    cluster: Standalone, broker: Broker, topic: str, tmp_path: Path, name: str
) -> None:
    """On a cluster: a straggler is overtaken by its copy, and an executor is killed in a task."""
    job = Job(broker, topic, tmp_path, [name])
    job.more(400)
    job.faults.mkdir(exist_ok=True)
    (job.faults / "task.begun").write_text(f"wait {STRAGGLER_S}")
    (job.faults / "commit.begun").write_text("wait 0")
    conf = {
        **cluster.configuration(),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.executorEnv.OTTLA_FAULTS": str(job.faults),
    }
    with job.driver(conf.pop("spark.master"), conf=conf, limit=100) as driver:
        driver.wait_for("task.begun")
        driver.wait_for("commit.begun")  # which gives up long before the straggler does
        (job.faults / "task.staged").write_text("wait 3")
        driver.wait_for("task.staged")
        os.kill(cluster.executor_pids()[0], signal.SIGKILL)
        driver.finish()
    if name != "stateless":
        job.more(20, last=True)
        with job.driver("local[2]", limit=plans.ALL) as driver:
            driver.finish()
    job.check()
