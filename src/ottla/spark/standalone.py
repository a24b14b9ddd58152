"""A Spark cluster on this machine: a master and its workers, from the pip package alone.

For tests and demos: the same processes as on a real cluster (executors in JVMs of their own, which
can be killed), on free ports of loopback. Each daemon runs under a shell that ends it, with all its
executors, when the pipe from us closes: so nothing is left behind, not even when we are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .home import quick_home
from .java import find_java
from .processes import processes

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.2
DAEMON_MEMORY = "256m"
# For the executors too: they live for minutes, and compile only what is hot by then.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Less than a worker's: the executor's JVM needs more than its heap.
EXECUTOR_MEMORY = "700m"
# $1 is the daemon's directory, $2 whether it goes away in the end, the rest is its command. The
# daemon's executors are in its process group; a Python worker goes when its executor does.
GUARD = """
home=$1 remove=$2; shift 2
trap : TERM
"$@" >"$home/log" 2>&1 &
cat >/dev/null
kill -TERM 0
wait
if [ "$remove" = 1 ]; then rm -rf "$home"; rmdir "$(dirname "$home")" 2>/dev/null; fi
kill -KILL 0
"""


class ClusterFailed(RuntimeError):
    """The cluster did not start; the message has the end of the log of whoever failed."""


class Daemon:
    """One master or worker under its guard."""

    def __init__(self, home: Path, arguments: list[str], *, remove: bool) -> None:
        self.home = home
        (home / "tmp").mkdir(parents=True)
        spark_home = quick_home(home)
        command = [str(spark_home / "bin" / "spark-class"), *arguments]
        self.process = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", str(home), "1" if remove else "0", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(home, spark_home),
            # A group of its own: Ctrl-C is for us alone, and the guard can end them all.
            start_new_session=True,
        )

    def log(self) -> str:
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pids(self, needle: str) -> list[int]:
        """The processes under this daemon's guard whose command line contains `needle`."""
        guard = self.process.pid
        return [
            each.pid
            for each in processes()
            if each.group == guard and each.pid != guard and needle in each.command
        ]

    def kill(self) -> None:
        """SIGKILL to the daemon and its executors."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Let the guard end it; `wait` sees it gone."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def wait(self) -> None:
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Standalone:
    """A running cluster: its master's address, and its executors' processes."""

    def __init__(self, directory: Path, *, remove: bool) -> None:
        self.directory = directory
        self.remove = remove
        self.master_url = ""
        self.web_url = ""
        self.master: Daemon | None = None
        self.workers: list[Daemon] = []

    def start(self, workers: int, cores: int, memory: str) -> None:
        self.master = self._daemon("master", "master.Master", "--port", "0")
        self.master_url = self._logged(self.master, r"Starting Spark master at (spark://\S+)")
        self.web_url = self._logged(self.master, r"MasterWebUI .*started at (http://[^\s/]+)")
        for _ in range(workers):
            self.start_worker(cores, memory)
        self._until(lambda: self.alive_workers() == workers, "workers did not register")

    def start_worker(self, cores: int = 1, memory: str = "1g") -> Daemon:
        """One worker more; it registers within a few seconds."""
        name = f"worker-{len(self.workers)}"
        work = self.directory / name / "work"
        size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(work))
        # Spark runs the copy of a slow task on another host only, so workers are hosts of their own
        # where all of 127/8 is this machine.
        host = f"127.0.0.{len(self.workers) + 1}" if sys.platform == "linux" else "127.0.0.1"
        arguments = ("--port", "0", *size, self.master_url)
        worker = self._daemon(name, "worker.Worker", *arguments, host=host)
        self.workers.append(worker)
        return worker

    def state(self) -> dict[str, Any]:
        """The master's status page: workers, running applications, cores."""
        with LOCAL.open(f"{self.web_url}/json/", timeout=5) as page:
            found: dict[str, Any] = json.loads(page.read())
        return found

    def alive_workers(self) -> int:
        try:
            return int(self.state()["aliveworkers"])
        except OSError:
            return 0

    def executor_pids(self) -> list[int]:
        """The JVMs that run tasks now, over all workers."""
        return [pid for worker in self.workers for pid in worker.pids("ExecutorBackend")]

    def configuration(self) -> dict[str, str]:
        """What a session's builder needs to run here; PYSPARK_PYTHON is set beside it."""
        return {
            "spark.master": self.master_url,
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def stop(self) -> None:
        """End the workers, then the master, and remove what they wrote."""
        for daemons in (self.workers, [self.master] if self.master else []):
            for daemon in daemons:
                daemon.close()
            for daemon in daemons:
                daemon.wait()
        if self.remove:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- inside ----------------------------------------------------------------------------------

    def _daemon(self, name: str, kind: str, *arguments: str, host: str = "127.0.0.1") -> Daemon:
        words = [
            f"org.apache.spark.deploy.{kind}",
            "--host", host, "--webui-port", "0", *arguments,
        ]  # fmt: skip
        return Daemon(self.directory / name, words, remove=self.remove)

    def _logged(self, daemon: Daemon, pattern: str) -> str:
        """A group of `pattern` in a daemon's log, once it is there: its port, for instance."""
        found: list[str] = []

        def look() -> bool:
            found[:] = re.findall(pattern, daemon.log())
            return bool(found)

        self._until(look, f"the {daemon.home.name} did not start")
        return found[0]

    def _until(self, done: Callable[[], bool], trouble: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        ended_before: Daemon | None = None
        while not done():
            daemons = [d for d in (self.master, *self.workers) if d is not None]
            ended = next((d for d in daemons if not d.pids("org.apache.spark")), None)
            late = time.monotonic() > deadline
            # Seen twice: a process has no command line for the moment of its exec.
            gone = ended is not None and ended is ended_before and ended.log()
            ended_before = ended
            if late or gone:
                tail = "\n".join((ended or daemons[-1]).log().splitlines()[-15:])
                raise ClusterFailed(f"{trouble}:\n{tail}")
            time.sleep(POLL_S)


@contextlib.contextmanager
def standalone(
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    directory: str | os.PathLike[str] | None = None,
) -> Iterator[Standalone]:
    """A cluster with all its workers registered, gone at the end of the block.

    Logs and executors' files are in `directory`, which then stays; without one, nothing stays.
    """
    find_java()
    home = Path(tempfile.mkdtemp(prefix="ottla-cluster-") if directory is None else directory)
    cluster = Standalone(home, remove=directory is None)
    # Executors are started with the Python of the driver's environment, not of the worker's.
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        cluster.start(workers, cores, memory)
        yield cluster
    finally:
        cluster.stop()
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


# The master is on loopback: no proxy.
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def environment(home: Path, spark_home: Path) -> Mapping[str, str]:
    """A daemon's: nothing of a Spark that may be installed on this machine besides."""
    kept = {
        name: value
        for name, value in os.environ.items()
        # Bytecode is kept, or every Python worker would compile all it imports.
        if not name.startswith("SPARK_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {
        **kept,
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={home / 'tmp'}",
        "PYSPARK_PYTHON": sys.executable,
    }
