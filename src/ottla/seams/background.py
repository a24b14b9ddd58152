"""Work that may not hold the event loop: blocking calls in threads, heavy ones in a process.

`RealBackground` has a few threads for calls that wait on the disk (fsync, unlink of big files,
SQLite commits) and starts a helper process for work that burns CPU (compaction, the scan of a big
log after a crash): one job, JSON in, JSON out, at a lower priority, gone afterwards. The helper's
standard input stays open while it works; when it closes, because the job was cancelled or because
this process died, the helper ends at once. So no helper outlives its broker, on any system.

`InlineBackground` does everything at once on the caller's thread: for tests and the simulation.

Either way the caller gets an `asyncio.Future` and errors arrive through it. A helper's error
arrives as `HelperFailed`, with the type and the text of what went wrong over there.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import subprocess

    from ottla.seams.disk import Disk

Result = TypeVar("Result")
Arguments = dict[str, Any]
# A job is given the disk and its arguments, both ways plain JSON values.
Job = Callable[["Disk", Arguments], Arguments]

THREADS = 4  # enough that one slow fsync does not hold up the unlinks and commits behind it
PROCESSES_MAX = 1  # Kafka's log.cleaner.threads: one job at a time, the others wait their turn
JOBS_WAITING_MAX = 1_000  # more than that is a fault of the caller, not a queue
HELPER_MODULE = "ottla.log.helper"
HELPER_NICENESS = 10
PACE_STEP_S = 0.01  # shorter rests cost more than they are worth
HELPER_END_S = 5.0  # how long a helper may take to end once its answer is read


class HelperFailed(Exception):
    """A job in a helper process went wrong; says which job, what and why."""

    def __init__(self, job: str, kind: str, message: str) -> None:
        super().__init__(f"background job {job!r} failed: {kind}: {message}")
        self.job = job
        self.kind = kind
        self.message = message


class Background(Protocol):
    """Where to put work that would hold the event loop."""

    def thread(self, fn: Callable[..., Result], *args: Any) -> "asyncio.Future[Result]":
        """Runs a blocking call on a thread; the future brings its result or its exception."""
        ...

    def process(self, job: str, arguments: Arguments) -> "asyncio.Future[Arguments]":
        """Runs a named job in a helper process; cancelling the future ends the process."""
        ...

    def close(self) -> None:
        """Ends running helpers and waits for the threads; no work is taken afterwards."""
        ...


class RealBackground:
    """Threads and helper processes of this machine."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        helper_module: str = HELPER_MODULE,
        processes_max: int = PROCESSES_MAX,
    ) -> None:
        self._loop = loop
        self._helper_module = helper_module
        self._processes_max = processes_max
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-background")
        self._running: set[_HelperRun] = set()
        self._waiting: deque[_HelperRun] = deque()
        self._closed = False

    def thread(self, fn: Callable[..., Result], *args: Any) -> "asyncio.Future[Result]":
        return self._loop.run_in_executor(self._pool, fn, *args)

    def process(self, job: str, arguments: Arguments) -> "asyncio.Future[Arguments]":
        if self._closed:
            raise RuntimeError(f"background work is closed; {job!r} came too late")
        if len(self._waiting) >= JOBS_WAITING_MAX:
            raise RuntimeError(f"{JOBS_WAITING_MAX} background jobs are waiting; {job!r} refused")
        future: asyncio.Future[Arguments] = self._loop.create_future()
        run = _HelperRun(self._loop, self._helper_module, job, arguments, future)
        future.add_done_callback(lambda _: run.stop())
        self._waiting.append(run)
        self._start_next()
        return future

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._processes_max:
            run = self._waiting.popleft()
            if run.future.done():
                continue
            self._running.add(run)
            run.start(self._ended)

    def _ended(self, run: "_HelperRun") -> None:
        self._running.discard(run)
        if not self._closed:
            self._start_next()

    def close(self) -> None:
        self._closed = True
        for run in [*self._running, *self._waiting]:
            run.stop()
            if not run.future.done() and not self._loop.is_closed():
                run.future.cancel()
        for run in list(self._running):
            run.join()
        self._pool.shutdown(wait=True)


class _HelperRun:
    """One helper process and the thread that waits for it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        module: str,
        job: str,
        arguments: Arguments,
        future: "asyncio.Future[Arguments]",
    ) -> None:
        self.future = future
        self._loop = loop
        self._module = module
        self._job = job
        self._request = json.dumps({"job": job, "arguments": arguments}).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self, ended: Callable[["_HelperRun"], None]) -> None:
        self._thread = threading.Thread(
            target=self._work, args=(ended,), name=f"ottla-helper-{self._job}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _work(self, ended: Callable[["_HelperRun"], None]) -> None:
        result: Arguments | None = None
        error: Exception | None = None
        try:
            result = self._run()
        except Exception as raised:
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._deliver, result, error, ended)
        except RuntimeError:
            pass  # the loop was closed first: nobody waits any more

    def _deliver(
        self,
        result: Arguments | None,
        error: Exception | None,
        ended: Callable[["_HelperRun"], None],
    ) -> None:
        ended(self)
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result or {})

    def _run(self) -> Arguments:
        process = self._spawn()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(self._request)
            process.stdin.flush()
            answer = process.stdout.read()
        except OSError as error:
            raise HelperFailed(self._job, type(error).__name__, str(error)) from error
        finally:
            self._reap(process)
        return self._read(answer, process.returncode)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        import subprocess  # only brokers that compact or recover pay for the import

        with self._lock:
            if self._stopped:
                raise HelperFailed(self._job, "Cancelled", "the job was stopped before it began")
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            return self._process

    def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        import subprocess

        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
        except OSError:
            pass  # it died with our request still in the pipe; the exit code tells
        try:
            process.wait(HELPER_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _read(self, answer: bytes, exit_code: int) -> Arguments:
        try:
            message = json.loads(answer)
        except ValueError:
            raise HelperFailed(
                self._job, "NoAnswer", f"the helper process ended with status {exit_code}"
            ) from None
        if "error" in message:
            raise HelperFailed(self._job, message["error"]["kind"], message["error"]["message"])
        result: Arguments = message["result"]
        return result


class InlineBackground:
    """Everything at once, on the caller's thread: for tests and the simulation."""

    def __init__(
        self,
        disk: "Disk | None" = None,
        jobs: Mapping[str, Job] | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._disk = disk
        self._jobs = jobs or {}
        self._loop = loop
        self._own_loop: asyncio.AbstractEventLoop | None = None

    def thread(self, fn: Callable[..., Result], *args: Any) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def process(self, job: str, arguments: Arguments) -> "asyncio.Future[Arguments]":
        future: asyncio.Future[Arguments] = self._future()
        try:
            assert self._disk is not None, "InlineBackground(disk, jobs) is needed for jobs"
            # Through JSON and back, so that what works here also works through a pipe.
            result = self._jobs[job](self._disk, json.loads(json.dumps(arguments)))
            future.set_result(json.loads(json.dumps(result)))
        except Exception as error:
            future.set_exception(HelperFailed(job, type(error).__name__, str(error)))
        return future

    def close(self) -> None:
        if self._own_loop is not None:
            self._own_loop.close()

    def _future(self) -> "asyncio.Future[Any]":
        loop = self._loop or self._own_loop
        if loop is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                # Futures belong to a loop; a test without one still wants `.result()`.
                loop = self._own_loop = asyncio.new_event_loop()
        return loop.create_future()


class Pace:
    """Keeps a helper to so many bytes a second, by sleeping; None is no limit."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._bytes_per_second = bytes_per_second
        self._began_s = time.monotonic()
        self._bytes = 0

    def moved(self, size: int) -> None:
        """So many bytes were read or written: rests until that is no more than the limit."""
        if self._bytes_per_second is None:
            return
        self._bytes += size
        ahead_s = self._bytes / self._bytes_per_second - (time.monotonic() - self._began_s)
        if ahead_s > PACE_STEP_S:
            time.sleep(ahead_s)


def serve_one_job(jobs: Mapping[str, Job], disk: "Disk") -> int:
    """The helper process's whole life: read one job from stdin, do it, answer on stdout."""
    try:
        os.nice(HELPER_NICENESS)
    except (AttributeError, OSError):
        pass  # no priorities here: the job runs as it is
    # Only the answer may reach the pipe: whatever a library prints goes to stderr.
    answer_to = os.dup(1)
    os.dup2(2, 1)
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    threading.Thread(target=_end_with_parent, daemon=True).start()
    request = json.loads(line)
    try:
        answer: Arguments = {"result": jobs[request["job"]](disk, request["arguments"])}
    except Exception as error:
        answer = {"error": {"kind": type(error).__name__, "message": str(error)}}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(answer_to, data) :]
    os.close(answer_to)
    return 0


def _end_with_parent() -> None:
    # Not through sys.stdin: a thread that holds its lock would trip the interpreter's own end.
    while os.read(0, 4096):
        pass
    os._exit(1)
