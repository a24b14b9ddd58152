"""SQL in processes of its own: a statement that fills the memory, or keeps a processor busy where
nothing can interrupt it, ends its process and nothing else.

DuckDB's limit of memory does not count all that a function makes (`repeat('x', 1e9)` of each row of
a vector), and what a result holds is made into Python's objects. So the process has a limit of the
system's (RLIMIT_DATA), is the first to go when the machine has no memory left, and may write no
file. An idle one is kept for the next statement: starting one takes some tenths of a second.

Over its standard input comes one request a line, over its output the lines of the answer, then END.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any

from ..context import Cluster
from ..picture import ClusterPicture, PartitionPicture, TopicPicture
from .duck import MEMORY_MB
from .pushdown import Limits
from .work import LINES, Deadline, Problem, Put, Stop, Stopped, encoded

IDLE_MAX = 1
STATEMENTS_MAX = 100  # of one process: what it lost of memory comes back with the next
# Of the process: DuckDB's own, as much for Python's objects, and the stacks of threads.
SPACE_MB_MAX = 2 * MEMORY_MB + 512
# Allocators that reserve a gigabyte at once leave nothing below the limit.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
LATE_MS = 3_000  # beyond the statement's own time, for what cannot be interrupted
END = b'{"end of the statement":true}\n'
NO_MEMORY = (
    "It needs more memory than a statement has: narrow it by time, offset or partition, or make "
    "its values smaller."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement and what is known of its topics."""

    cluster: str
    client_properties: Mapping[str, Any]
    partitions: Mapping[str, Sequence[int]]  # of those topics that the picture has
    text: str
    limits: Limits
    isolation_level: str
    rows_max: int
    allowed: Sequence[str]
    time_ms: float

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        text: str,
        limits: Limits,
        isolation_level: str,
        rows_max: int,
        allowed: Sequence[str],
        time_ms: float,
    ) -> Asked:
        topics = cluster.picture.topics
        known = {
            each: [part.partition for part in topics[each].partitions]
            for each in allowed
            if each in topics
        }
        return cls(
            cluster.name, cluster.client_properties, known, text, limits, isolation_level, rows_max,
            allowed, time_ms,
        )  # fmt: skip

    def line(self) -> bytes:
        limits = asdict(self.limits)
        chosen = limits["partitions"]
        limits["partitions"] = None if chosen is None else sorted(chosen)
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found |= {"limits": limits, "client_properties": dict(self.client_properties)}
        return json.dumps(found, default=str).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Asked:
        found = json.loads(line)
        limits = found["limits"]
        if limits["partitions"] is not None:
            limits["partitions"] = frozenset(limits["partitions"])
        return cls(**found | {"limits": Limits(**limits)})


class Processes:
    """Those that wait for a statement; as many run as there are threads that ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._served: dict[int, int] = {}  # statements, by process
        self.running: set[int] = set()  # processes
        atexit.register(self.close)

    def answer(self, asked: Asked, put: Put, stop: Stop) -> None:
        """The lines of the answer. Raises Problem, Stopped."""
        line = asked.line()
        stop.check()
        process = self._taken()
        late = threading.Event()
        over = threading.Event()

        def end() -> None:
            with self._lock:
                if not over.is_set():  # else it has another one's statement, or none
                    process.kill()

        def end_late() -> None:
            late.set()
            end()

        timer = threading.Timer((asked.time_ms + LATE_MS) / 1000, end_late)
        timer.daemon = True
        timer.start()
        stop.on_stop(end)
        whole = False
        try:
            whole = self._ask(process, line, put)
        finally:
            timer.cancel()
            with self._lock:
                over.set()
            self._back(process, whole and not late.is_set() and not stop)
        if whole:
            return
        stop.check()
        if late.is_set():
            raise Problem(f"It took longer than {asked.time_ms / 1000:.0f} s, and was ended.")
        raise Problem(NO_MEMORY)

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], line: bytes, put: Put) -> bool:
        """Whether the answer came to its end."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except OSError:
            return False
        for each in process.stdout:
            if each == END:
                return True
            if not each.endswith(b"\n"):
                return False
            put(each)
        return False

    def _taken(self) -> subprocess.Popen[bytes]:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    break
            else:
                process = started()
                self._served[process.pid] = 0
            self._served[process.pid] += 1
            self.running.add(process.pid)
            return process

    def _back(self, process: subprocess.Popen[bytes], whole: bool) -> None:
        with self._lock:
            self.running.discard(process.pid)
            fresh = self._served[process.pid] < STATEMENTS_MAX
            if whole and fresh and len(self._idle) < IDLE_MAX:
                self._idle.append(process)
                return
            del self._served[process.pid]
        ended(process)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            ended(each)


def started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ottla.console.data.query_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the console, which ends it
        env={**os.environ, **FRUGAL},
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for each in (process.stdin, process.stdout):
        if each is not None:
            with suppress(OSError):
                each.close()
    process.wait()


PROCESSES = Processes()  # of all consoles of this process


# The process


class KnownCluster:
    """What `Query` needs of a cluster."""

    def __init__(self, asked: Asked) -> None:
        from ottla.client.admin import Admin

        self.name = asked.cluster
        self.client_properties = asked.client_properties
        self.picture = ClusterPicture(
            asked.cluster,
            topics={
                topic: TopicPicture(
                    topic, None, False,
                    tuple(PartitionPicture(each, None, 0, (), ()) for each in partitions),
                )
                for topic, partitions in asked.partitions.items()
            },
        )  # fmt: skip
        self._admin = Admin(**asked.client_properties)

    def admin(self) -> Any:
        return self._admin

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._admin.close()


def bounded() -> None:
    """Set the limits of this process."""
    import resource

    with suppress(OSError, ValueError):
        # What is only reserved (arenas of malloc) does not count in it, as it does in RLIMIT_AS.
        most = SPACE_MB_MAX * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(asked: Asked, out: IO[bytes]) -> bool:
    """One statement's answer; whether the process may go on."""
    from ottla.client.errors import KafkaError

    from .querying import Query

    def emit(document: dict[str, Any]) -> None:
        out.write(encoded(document, LINES))
        out.flush()

    cluster = None
    try:
        cluster = KnownCluster(asked)
        query = Query(
            cluster, asked.text, Stop(), asked.limits, asked.isolation_level, asked.rows_max,
            deadline=Deadline(asked.time_ms),
        )  # fmt: skip
        query.run(emit, asked.allowed)
    except MemoryError:
        emit({"error": NO_MEMORY})
        return False
    except (Problem, KafkaError, TimeoutError) as error:
        emit({"error": str(error) or type(error).__name__})
    except Stopped:
        return False
    finally:
        if cluster is not None:
            cluster.close()
    return True


def main() -> None:
    import duckdb  # noqa: F401  # so that the first statement finds all loaded
    import pyarrow

    from . import querying  # noqa: F401

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints does not belong to the answer
    bounded()
    for line in sys.stdin.buffer:
        goes_on = answer(Asked.from_line(line), out)
        out.write(END)
        out.flush()
        if not goes_on:
            return


if __name__ == "__main__":
    main()
