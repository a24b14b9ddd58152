"""The demo's course: a broker, Spark, the agent on a log that grows, a kill, and a reckoning.

`Demo.run` returns the checks. It owes its caller that nothing is left running: everything it starts
is on the `ExitStack` it is given.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ottla import Admin, NewTopic
from ottla.testing import broker
from scripts.demo.panel import Screen
from scripts.demo.process import Process
from scripts.demo.running import (
    JAVA_OPTIONS,
    LOCAL_MASTER,
    LOOK_S,
    PARTITIONS,
    PATIENCE_S,
    ROOT,
    SETTINGS,
    TRIGGER,
    DemoFailed,
)
from scripts.demo.story import Check, Sample, rates
from scripts.demo.watching import Watcher

from . import results
from .panel import View
from .results import Results
from .site import Site, files, recount

CONFIG = "examples/agent/nginx.conf"
PIPELINE = "examples/agent/status_codes.py"
# Parts of the whole time: while the agent is away the log is rotated at least once.
KILL_AFTER = 0.4
START_AFTER = 0.55
ROTATE_EVERY = 0.125


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    seconds: float = 40.0
    rate: float = 1000.0  # lines a second
    spark: bool = True


class Demo:
    """One run."""

    def __init__(self, plan: Plan, screen: Screen, stack: ExitStack) -> None:
        self.plan = plan
        self.screen = screen
        self.stack = stack
        self.topics = [results.LINES, results.STATUSES] if plan.spark else [results.LINES]
        self.results = Results()
        self.home = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="ottla-demo-", ignore_cleanup_errors=True)
            )
        )
        self.logs = self.home / "nginx"
        self.happenings: list[tuple[float, str]] = []
        self.samples: list[Sample] = []
        self.opened = threading.Event()
        self.opened_at = time.monotonic()
        self.killed_at_s: float | None = None
        self.arrived_at_kill = 0
        self.back = False
        self.agent: Process | None = None
        self.pipeline: Process | None = None

    def run(self) -> list[Check]:
        self._start_broker()
        if self.plan.spark:
            self._start_pipeline()
        self._start_site()
        self._start_agent()
        self.screen.say(f"ottla agent run {CONFIG}: process {self._pid()}")
        self._wait_until_awake()
        self._watch()
        self._drain()
        return self._reckon()

    # ---- the parts -------------------------------------------------------------------------------

    def _start_broker(self) -> None:
        began = time.monotonic()
        started = self.stack.enter_context(broker(num_partitions=PARTITIONS))
        self.address = started.bootstrap_servers
        with Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics(
                [
                    NewTopic(name, PARTITIONS, 1, topic_configs=results.CONFIGS.get(name, {}))
                    for name in self.topics
                ]
            )
        took_s = time.monotonic() - began
        self.screen.say(f"started a broker on {self.address} [{took_s:.1f} s]")

    def _start_pipeline(self) -> None:
        from ottla.spark.home import quick_home

        temporary = self.home / "tmp"
        temporary.mkdir()
        options = [part for pair in SETTINGS.items() for part in ("--set", "=".join(pair))]
        self.pipeline = self._process(
            "pipeline.log",
            *("pipeline", "run", PIPELINE, "--live", "--json", "--bootstrap-server", self.address),
            *("--master", LOCAL_MASTER, "--checkpoint", str(self.home / "checkpoint")),
            *("--trigger", TRIGGER, *options),
            environment={
                "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={temporary}",
                "SPARK_HOME": str(quick_home(temporary)),
                "SPARK_LOCAL_DIRS": str(temporary),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TMPDIR": str(temporary),
            },
        )
        self.screen.say(f"starting Spark with {PIPELINE}; this takes some 20 seconds")

    def _start_site(self) -> None:
        rotate_s = self.plan.seconds * ROTATE_EVERY
        self.site = Site(self.logs, self.plan.rate, self.plan.seconds, rotate_s, self.opened)
        self.watcher = Watcher(self.address, self.topics, (), self.results.take)
        for thread in (self.site, self.watcher):
            thread.start()
            self.stack.callback(thread.stop)

    def _start_agent(self) -> None:
        """The command a person would type; also after the kill."""
        config = self.home / "nginx.conf"
        text = (ROOT / CONFIG).read_text().replace("/var/log/nginx", str(self.logs))
        config.write_text(text.replace("localhost:9092", self.address))
        data = str(self.home / "agent")
        self.agent = self._process(
            "agent.log", "agent", "run", str(config), "--data-dir", data, environment={}
        )

    def _process(self, log: str, *arguments: str, environment: dict[str, str]) -> Process:
        command = [sys.executable, "-m", "ottla", *arguments]
        process = Process(command, self.home / log, {**os.environ, **environment}, ROOT)
        self.stack.callback(process.kill)
        return process

    def _wait_until_awake(self) -> None:
        """Until the first lines have gone through everything; then the clock starts."""
        began = time.monotonic()
        while not self._through():
            self._look_after()
            if time.monotonic() > began + PATIENCE_S:
                raise DemoFailed(f"no line arrived in time:\n{self._words()}")
            time.sleep(LOOK_S)
        took_s = time.monotonic() - began
        self.screen.say(f"the first lines went through [{took_s:.1f} s]; the site opens")
        self.opened_at = time.monotonic()
        self._note("the site opens")
        self.opened.set()

    def _through(self) -> bool:
        """Whether a line has arrived, and been counted."""
        found = self.results.statuses if self.plan.spark else self.results.lines
        return bool(found.total())

    def _watch(self) -> None:
        """Until the last line is written; in the middle, the kill."""
        while self.site.is_alive():
            self._look()
            passed = self._now_s() / self.plan.seconds
            if self.killed_at_s is None and passed > KILL_AFTER:
                self._kill()
            elif self.killed_at_s is not None and self.agent is None and passed > START_AFTER:
                self._restart()
            time.sleep(LOOK_S)
        if self.agent is None:  # a machine so busy that the loop above came late
            self._restart()

    def _kill(self) -> None:
        assert self.agent is not None
        pid = self._pid()
        self.agent.kill()
        self.agent = None
        self.killed_at_s = self._now_s()
        self.rotations_at_kill = self.site.rotations
        self._note(f"SIGKILL to the agent, process {pid}; the log goes on")

    def _restart(self) -> None:
        missed = self.site.rotations - self.rotations_at_kill
        self.arrived_at_kill = self._arrived()
        self._start_agent()
        self._note(f"the same command again: process {self._pid()}, after {missed} rotations")

    def _drain(self) -> None:
        """Until all has arrived and is counted, or does not get on."""
        self._note("the site closes; the last lines are under way")
        progress, since = -1, time.monotonic()
        while not self._complete():
            self._look()
            now = self._arrived() + self.results.statuses.total()
            if now != progress:
                progress, since = now, time.monotonic()
            elif time.monotonic() > since + PATIENCE_S:
                self._note("not all lines came in time")
                break
            time.sleep(LOOK_S)
        self._look()
        self.screen.leave()

    def _complete(self) -> bool:
        counted = self.results.statuses.total() if self.plan.spark else self.site.written
        return min(self._arrived(), counted) >= self.site.written

    def _reckon(self) -> list[Check]:
        """Stop everything, read files and topics from their beginnings, and compare."""
        self.watcher.stop()
        codes = {}
        for name, process in (("agent", self.agent), ("pipeline", self.pipeline)):
            if process is not None:
                codes[name] = process.stop()
        checks = results.compare(
            recount(self.logs), results.read(self.address, self.topics), self.plan.spark
        )
        told = ", ".join(f"{name}: exit code {code}" for name, code in codes.items())
        claim = "SIGTERM ends what runs in good order"
        good = ", ".join(f"{name}: exit code 0" for name in codes)
        return [*checks, Check(claim, good, told, not any(codes.values()))]

    # ---- looking ---------------------------------------------------------------------------------

    def _pid(self) -> int:
        assert self.agent is not None
        return self.agent.pid

    def _arrived(self) -> int:
        return self.results.lines.total()

    def _now_s(self) -> float:
        return time.monotonic() - self.opened_at

    def _note(self, what: str) -> None:
        self.happenings.append((self._now_s(), what))
        self.screen.happened(self._view())

    def _words(self) -> str:
        processes = [each for each in (self.agent, self.pipeline) if each is not None]
        return "\n".join(process.words() for process in processes)

    def _look_after(self) -> None:
        """Whoever died by itself ends the demo."""
        for thread in (self.site, self.watcher):
            if thread.failure is not None:
                raise DemoFailed(f"the {thread.name} failed: {thread.failure!r}")
        for name, process in (("agent", self.agent), ("pipeline", self.pipeline)):
            if process is not None and not process.running:
                raise DemoFailed(f"the {name} ended by itself:\n{process.words()}")

    def _look(self) -> None:
        self._look_after()
        now_s = self._now_s()
        self.samples.append(Sample(now_s, self.site.written, self._arrived()))
        restarted = self.killed_at_s is not None and self.agent is not None
        if restarted and not self.back and self._arrived() > self.arrived_at_kill:
            self.back = True
            assert self.killed_at_s is not None
            self._note(f"lines arrive again, {now_s - self.killed_at_s:.1f} s after the kill")
        self.screen.show(self._view())

    def _view(self) -> View:
        recent = rates(self.samples[-120:])
        every = max(1, int(self.plan.seconds / 16 / LOOK_S))
        found = self.results.statuses if self.plan.spark else self.results.arrived
        return View(
            elapsed_s=self._now_s(),
            seconds=self.plan.seconds,
            written=self.site.written,
            written_per_s=recent[-1][1] if recent else 0.0,
            arrived=self._arrived(),
            counted=self.results.statuses.total() if self.plan.spark else None,
            rates=[written for _, written, _ in recent][::-every][::-1],
            lags=[sample.lag for sample in self.samples][::-every][::-1],
            statuses=Counter(dict(found)).most_common(),
            files=files(self.logs),
            running=self.agent is not None,
            happenings=self.happenings,
        )
