"""`ottla pipeline run`: the session, the queries, the signals, and starting again after a failure.

The first SIGINT or SIGTERM stops the queries and ends with 0; a second one ends at once. With
`--restart` the work is done in a child, so that even a killed JVM is survived.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import known_options
from ottla.cli.failure import Failure
from ottla.cli.pipeline_publishing import Publisher
from ottla.cli.pipeline_view import View, say
from ottla.client.config import COMMON
from ottla.spark.pipelines.bounds import Bound
from ottla.spark.pipelines.declaring import Pipeline, with_client
from ottla.spark.pipelines.existing import check_sources
from ottla.spark.pipelines.loading import load_all, parted
from ottla.spark.pipelines.topics import PipelineError
from ottla.spark.sessions import need_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.running import Run

LOOK_EVERY_S = 0.25
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Wanted:
    """What the command line says. A file that can only be read in a session is read then."""

    targets: tuple[str, ...]
    pipelines: list[Pipeline]
    mode: str
    servers: str
    start: Bound
    until: Bound
    master: str
    checkpoint: str
    trigger: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    verbose: bool = False
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # Kafka's properties


class Stop:
    """Has somebody asked us to stop?"""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._received)

    def forget(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set():
            # The JVM goes when the pipe from us closes; the checkpoint holds what is done.
            os._exit(128 + number)
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> None:
        self._asked.wait(seconds)


def run(wanted: Wanted) -> int:
    """Run to the end, or until it is stopped; the exit code."""
    show_warnings()
    try:
        # Before Spark, which takes its time.
        need_installed()
        wanted = replace(
            wanted, pipelines=[with_client(each, wanted.client) for each in wanted.pipelines]
        )
        for each in wanted.pipelines:
            check_sources(each, wanted.servers)
        spark = session_for(wanted)
        try:
            wanted = with_pipelines(wanted)
            if wanted.mode == "past":
                return run_past(wanted, spark)
            return run_stream(wanted, spark)
        finally:
            end_session(spark)
    except PipelineError as problem:
        raise failure_of(problem) from problem


def show_warnings() -> None:
    """What the source, the sink and the pipelines warn of goes to stderr, in our manner."""
    # What a client logs it also raises in the end.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    logger = logging.getLogger("ottla.spark")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("ottla: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    # The bridge to the JVM logs the end of it, with tracebacks, wherever one looks.
    others = logging.StreamHandler()
    others.setLevel(logging.WARNING)
    others.addFilter(lambda record: "py4j" not in record.pathname)
    logging.getLogger().addHandler(others)


def session_for(wanted: Wanted) -> SparkSession:
    """One session for all pipelines: what they want of it, and over that what the caller wants."""
    from ottla.spark.sessions import session

    merged: dict[str, str] = {}
    for each in wanted.pipelines:
        merged |= each.options
    files = [parted(target)[0] for target in wanted.targets]
    return session(
        wanted.master,
        name="ottla pipeline " + ", ".join(file.stem for file in files),
        settings={**merged, **wanted.settings},
        import_from=dict.fromkeys(file.resolve().parent for file in files),
        verbose=wanted.verbose,
    )


def with_pipelines(wanted: Wanted) -> Wanted:
    """With the pipelines of files that waited for the session."""
    if wanted.pipelines:
        return wanted
    loaded = [with_client(each, wanted.client) for each in load_all(wanted.targets)]
    return replace(wanted, pipelines=loaded)


def end_session(spark: SparkSession) -> None:
    """A JVM that has exited takes no calls."""
    try:
        spark.stop()
    except Exception as gone:
        if not is_gone(gone):
            raise


def is_gone(error: BaseException) -> bool:
    """Is this the JVM's end, and not an answer of it?"""
    return isinstance(error, ConnectionError) or type(error).__name__ in (
        "Py4JNetworkError",
        "Py4JError",
    )


def settled(pipeline: Pipeline, settings: Mapping[str, str]) -> Pipeline:
    """The pipeline without options that the command line has the last word on."""
    kept = {name: value for name, value in pipeline.options.items() if name not in settings}
    return replace(pipeline, options=kept)


def run_past(wanted: Wanted, spark: SparkSession) -> int:
    import json

    for each in wanted.pipelines:
        began = time.monotonic()
        rows = settled(each, wanted.settings).past(
            spark, bootstrap_servers=wanted.servers, start=wanted.start, until=wanted.until
        )
        took_s = time.monotonic() - began
        if wanted.as_json:
            print(json.dumps({"pipeline": each.name, "rows": rows, "took_s": round(took_s, 3)}))
        else:
            listed = ", ".join(f"{count:,} rows to {sink}" for sink, count in rows.items())
            print(f"{each.name}: {listed}; {took_s:.1f} s", flush=True)
    return 0


def run_stream(wanted: Wanted, spark: SparkSession) -> int:
    stop = Stop()
    stop.listen()
    runs: list[Run] = []
    view = View(sys.stdout, as_json=wanted.as_json)
    publisher = Publisher(wanted.servers, known_options(COMMON, wanted.client))
    problem: str | None = None
    try:
        for each in wanted.pipelines:
            if stop.asked:
                break
            runs.append(
                settled(each, wanted.settings).start(
                    spark,
                    bootstrap_servers=wanted.servers,
                    checkpoint=wanted.checkpoint,
                    start=wanted.start,
                    catch_up=wanted.mode == "catch-up",
                    trigger=wanted.trigger,
                )
            )
            tell_start(runs[-1], wanted)
            publisher.began(each)
        follow(runs, view, stop, publisher)
    except Exception as error:
        problem = str(error) or type(error).__name__
        if not is_gone(error):
            raise
        raise Failure(
            "Spark's JVM has ended", "--verbose shows what it said; --restart 3 starts it again"
        ) from error
    finally:
        finish(runs, view)
        publisher.end(problem)
        stop.forget()
    tell_end(wanted, view, stopped=stop.asked)
    return 0


def follow(runs: list[Run], view: View, stop: Stop, publisher: Publisher) -> None:
    """Show what the queries say until they end, one fails, or somebody stops them."""
    guard = int(os.environ.get(SUPERVISED, 0))
    while not stop.asked:
        for each in runs:
            for reading in each.readings():
                view.show(reading)
                publisher.take(reading)
        for each in runs:
            failed = each.failure()
            if failed is not None:
                raise PipelineError(failed)
        active = [each.active() for each in runs]
        if not any(active):
            return
        if guard and os.getppid() != guard:
            # Nobody is left who could stop us.
            return
        stop.wait(LOOK_EVERY_S)


def finish(runs: list[Run], view: View) -> None:
    for each in runs:
        try:
            each.stop()
            for reading in each.readings():
                view.show(reading)
        except Exception as error:
            if not is_gone(error):
                raise
            each.home.release()
    view.finish()


def tell_start(run: Run, wanted: Wanted) -> None:
    where = "goes on" if run.resumed else "begins"
    note = ", --from is not used" if run.resumed and wanted.start != "earliest" else ""
    say(f"{run.pipeline.name} {where} ({run.home.where}{note})", as_json=wanted.as_json)


def tell_end(wanted: Wanted, view: View, *, stopped: bool) -> None:
    if view.late:
        rows = "1 row" if view.late == 1 else f"{view.late:,} rows"
        say(f"{rows} came later than the watermark: left out", as_json=wanted.as_json)
    if view.bad:
        bad = "1 record" if view.bad == 1 else f"{view.bad:,} records"
        say(f"{bad} did not parse: see bad_records", as_json=wanted.as_json)
    if stopped:
        say("stopped; the next run goes on from here", as_json=wanted.as_json)
    elif wanted.mode == "catch-up":
        say("caught up", as_json=wanted.as_json)


def failure_of(problem: PipelineError) -> Failure:
    fact, _, hint = str(problem).partition("\nTry: ")
    return Failure(" ".join(fact.split()), hint or "ottla pipeline check FILE")


# The process that starts this one again when it fails.
SUPERVISED = "OTTLA_PIPELINE_SUPERVISED"


def supervise(restarts: int, work: Callable[[], int]) -> int:
    """Do the work in a child; when it fails, again, up to so many times."""
    backoff_s = BACKOFF_FIRST_S
    guard = Guard()
    for attempt in range(restarts + 1):
        if not guard.fork():
            os.environ[SUPERVISED] = str(guard.pid)
            return work()
        code = guard.wait()
        if code == 0 or guard.stopped.is_set() or attempt == restarts:
            return code
        again = f"restart {attempt + 1} of {restarts} in {backoff_s:.0f} s"
        print(f"ottla: the run failed; {again}", file=sys.stderr, flush=True)
        if guard.stopped.wait(backoff_s):
            return code
        backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
    return 1


class Guard:
    """The parent of a run: signals go on to the child, and are remembered."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.stopped = threading.Event()
        self._child = 0
        self._before = {number: signal.signal(number, self._pass_on) for number in STOP_SIGNALS}

    def fork(self) -> bool:
        """True in the parent. No signal is lost between the two: they wait meanwhile."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        self._child = os.fork()
        if self._child == 0:
            # A group of its own: a Ctrl-C is passed on once, by us.
            os.setpgid(0, 0)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        return self._child != 0

    def wait(self) -> int:
        """The exit code of the child; of one that was killed, as a shell gives it."""
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.stopped.set()
        if self._child:
            os.kill(self._child, number)
