"""A driver in a process of its own, to be killed: queries of plans.py until the end.

    with Driver(servers, queries, master="local[2,4]", faults=directory) as driver: driver.kill()

As a program it reads its order from the command line (JSON).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from ottla.spark.processes import descendants, processes

END_S = 240.0


class Driver:
    """The process. `queries`: (plan, input topic, output topic, checkpoint)."""

    def __init__(
        self,
        servers: str,
        queries: list[tuple[str, str, str, str]],
        *,
        master: str,
        home: Path,
        faults: Path,
        **more: Any,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        faults.mkdir(exist_ok=True)
        order = {
            "servers": servers,
            "queries": queries,
            "master": master,
            "home": str(home),
            **more,
        }
        self.faults = faults
        self.output = home / "driver.log"
        with self.output.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env=environment(home, faults),
                start_new_session=True,
            )

    def wait_for(self, point: str) -> None:
        """Until a fault point was reached."""
        deadline = time.monotonic() + END_S
        while not (self.faults / f"{point}.reached").exists():
            assert self.process.poll() is None, f"the driver ended early:\n{self.log()}"
            assert time.monotonic() < deadline, f"{point} was not reached:\n{self.log()}"
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM first; its Python workers are left to themselves."""
        jvms = {each.pid for each in processes() if each.command.split(" ")[0].endswith("/java")}
        for pid in [*jvms.intersection(descendants(self.process.pid)), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(60)

    def finish(self) -> None:
        """Until it has done all there is to do."""
        code = self.process.wait(END_S)
        assert code == 0, f"the driver failed:\n{self.log()}"

    def log(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave nothing of it behind, orphans included."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(60)


def environment(home: Path, faults: Path) -> dict[str, str]:
    """Ours, with what makes Spark's Python start quickly."""
    from ottla.spark.home import quick_home

    inherited = dict(os.environ)
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    inherited.setdefault("SPARK_HOME", str(quick_home(home)))
    return inherited | {"OTTLA_FAULTS": str(faults), "PYSPARK_PYTHON": sys.executable}


def main(order: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from tests.spark.settings import CONF
    from tests.spark.sink import plans

    conf = {
        **CONF,
        "spark.sql.warehouse.dir": f"{order['home']}/warehouse",
        "spark.local.dir": f"{order['home']}/scratch",
        **order.get("conf", {}),
    }
    builder = SparkSession.builder.master(order["master"])
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    queries = []
    for name, topic, out, checkpoint in order["queries"]:
        rows = plans.plan(spark, order["servers"], name, topic, order.get("limit", 100))
        options = order.get("options", {})
        queries.append(plans.start(rows, order["servers"], out, checkpoint, **options))
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
