"""The demo's course: a broker, Spark, a shop that opens, a process that dies, and a reckoning.

With `Plan.cluster` there are three brokers and a Spark cluster, and a broker dies as well.

`Demo.run` fills a `Story` and shows it while it happens. It owes its caller that nothing is left
running: everything it starts is on the `ExitStack` it is given.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ottla import Admin, NewTopic
from ottla.spark.home import quick_home
from ottla.testing import broker, cluster

from . import brokers, results
from .brokers import Brokers
from .console import Console
from .generator import People, Sender
from .panel import Screen, View
from .process import Process
from .results import Results
from .story import Check, Sample, Story, rates
from .watching import Watcher

LOOK_S = 0.25
PARTITIONS = 4
# Nothing counted and nothing written for so long: it will not come. Spark needs some twenty
# seconds of a quiet machine from nothing to its first result, and minutes of a busy one.
PATIENCE_S = 300.0
# Parts of the whole time: the pipelines die while a broker is away, if there are several.
KILL_BROKER_AFTER = 0.25
KILL_AFTER = 0.4
START_BROKER_AFTER = 0.55
LOCAL_MASTER = "local[2]"
# Six queries share two cores: a batch of each every other second, in as many tasks as cores.
TRIGGER = "2 seconds"
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
# The JVM lives for half a minute: its optimizing compiler would cost more than it gains.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
GROUPS = tuple(group for name in results.PIPELINES for group in (name, f"{name}-bad"))
ROOT = Path(__file__).parent.parent.parent


class DemoFailed(RuntimeError):
    """Something did not come up, or went away; the message says what and shows its log."""


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    seconds: float = 60.0
    rate: float = 2000.0
    seed: int = 1883
    cluster: bool = False
    console: bool = True


class Demo:
    """One run."""

    def __init__(self, plan: Plan, screen: Screen, stack: ExitStack) -> None:
        self.plan = plan
        self.screen = screen
        self.stack = stack
        self.story = Story(seconds=plan.seconds)
        self.results = Results()
        self.home = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="ottla-demo-", ignore_cleanup_errors=True)
            )
        )
        self.opened = threading.Event()
        self.opened_at = time.monotonic()
        self.settings = dict(SETTINGS)
        self.batches: dict[str, float] = {}

    def run(self) -> Story:
        self._start_broker()
        if self.plan.cluster:
            self._start_cluster()
        self._start_console()
        self._start_pipelines()
        names = ", ".join(results.PIPELINES)
        where = self.story.master
        self.screen.say(f"starting Spark on {where} with {names}; this takes some 20 seconds")
        self._open_shop()
        self._watch_shop()
        self._drain()
        self._reckon()
        return self.story

    # ---- the parts -------------------------------------------------------------------------------

    def _start_broker(self) -> None:
        began = time.monotonic()
        self.brokers: Brokers | None = None
        if self.plan.cluster:
            several = self.stack.enter_context(cluster(brokers.COUNT, num_partitions=PARTITIONS))
            self.brokers = Brokers(several)
            self.address = several.bootstrap_servers
            self.story.brokers = brokers.COUNT
        else:
            self.address = self.stack.enter_context(
                broker(num_partitions=PARTITIONS)
            ).bootstrap_servers
        with Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics(
                [
                    NewTopic(
                        name,
                        PARTITIONS,
                        self.story.brokers,
                        topic_configs=results.CONFIGS.get(name, {}),
                    )
                    for name in (results.SOURCE, *results.TOPICS)
                ]
            )
        took_s = time.monotonic() - began
        what = f"{brokers.COUNT} brokers" if self.plan.cluster else "a broker"
        self.screen.say(f"started {what} on {self.address} [{took_s:.1f} s]")

    def _start_console(self) -> None:
        if not self.plan.console:
            return
        console = Console(self.address, self.home)
        self.stack.callback(console.stop)
        if console.address is None:
            self.screen.say("the console did not start; the demo goes on without it")
        else:
            self.screen.say(f"a console shows all of it while it runs: {console.address}")

    def _start_cluster(self) -> None:
        from ottla.spark.standalone import standalone

        began = time.monotonic()
        cluster = self.stack.enter_context(standalone(workers=2))
        self.settings |= cluster.configuration()
        took_s = time.monotonic() - began
        self.screen.say(
            f"started a Spark cluster, a master on {cluster.master_url} and two workers "
            f"[{took_s:.1f} s]"
        )

    def _start_pipelines(self) -> None:
        """The command a person would type; also after the kill."""
        settings = dict(self.settings)
        master = settings.pop("spark.master", LOCAL_MASTER)
        options = [part for pair in settings.items() for part in ("--set", "=".join(pair))]
        arguments = [
            *("pipeline", "run", *results.FILES, "--live", "--json"),
            *("--bootstrap-server", self.address, "--master", master),
            *("--checkpoint", str(self.home / "checkpoint"), "--trigger", TRIGGER, *options),
        ]
        self.process = Process(
            [sys.executable, "-m", "ottla", *arguments],
            self.home / "pipelines.log",
            {**os.environ, **self._environment()},
            ROOT,
        )
        self.stack.callback(self.process.kill)
        self.story.master = master
        self.story.command = shlex.join(["ottla", *arguments]).replace(" --", " \\\n    --")

    def _environment(self) -> dict[str, str]:
        """For the pipelines: what a killed JVM leaves behind must be below our directory."""
        temporary = self.home / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={temporary}",
            "SPARK_HOME": str(quick_home(temporary)),
            "SPARK_LOCAL_DIRS": str(temporary),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(temporary),
        }

    def _open_shop(self) -> None:
        """A first handful of events wakes Spark up; the clock starts when they are counted."""
        people = People(self.plan.seed, self.plan.rate, self.plan.seconds)
        self.sender = Sender(self.address, results.SOURCE, people, self.opened)
        self.watcher = Watcher(self.address, results.TOPICS, GROUPS, self.results.take)
        for thread in (self.sender, self.watcher):
            thread.start()
            self.stack.callback(thread.stop)
        began = time.monotonic()
        while not (0 < self.sender.sent <= self.watcher.counted):
            self._look_after()
            if time.monotonic() > began + PATIENCE_S:
                raise DemoFailed(f"Spark counted nothing in time:\n{self.process.words()}")
            time.sleep(LOOK_S)
        took_s = time.monotonic() - began
        self.screen.say(f"the pipelines are running [{took_s:.1f} s]; the shop opens")
        self.opened_at = time.monotonic()
        self._note("the shop opens")
        self.opened.set()

    def _watch_shop(self) -> None:
        """Until the last event is sent; in the middle, the kills."""
        while self.sender.is_alive():
            self._look()
            now_s = self._now_s()
            self._look_at_brokers(now_s / self.plan.seconds)
            if self.story.killed_at_s is None and now_s > self.plan.seconds * KILL_AFTER:
                self._kill()
            time.sleep(LOOK_S)

    def _look_at_brokers(self, passed: float) -> None:
        """Kill one, and start it again; `passed` is the part of the time that is over."""
        if self.brokers is None:
            return
        if self.brokers.killed is None and passed > KILL_BROKER_AFTER:
            self.brokers.kill_busiest_leader(results.SOURCE)
            self.story.broker_killed_at_s = self._now_s()
        elif passed > START_BROKER_AFTER and not self.brokers.starting:
            self.brokers.start_again()

    def _kill(self) -> None:
        pid = self.process.pid
        self.read_at_kill = dict(self.watcher.read)
        self.process.kill()
        self.story.killed_at_s = self._now_s()
        self._note(f"SIGKILL to the pipelines: process {pid}, Spark's JVM, all of it")
        self._start_pipelines()
        self._note(f"the same command again: process {self.process.pid}")

    def _drain(self) -> None:
        """Until the pipelines have written all there is to write, or do not get on."""
        self._note("the shop closes; the last events are being counted")
        truth = results.recount(self.sender.events, self.sender.broken)
        self.truth = truth
        progress, since = -1, time.monotonic()
        while not self.results.complete(truth) or self.watcher.counted < self.sender.sent:
            self._look()
            now = self.watcher.counted + self.results.rows
            if now != progress:
                progress, since = now, time.monotonic()
            elif time.monotonic() > since + PATIENCE_S:
                self._note("not all results came in time")
                break
            time.sleep(LOOK_S)
        self._look()
        self.screen.leave()

    def _reckon(self) -> None:
        """Stop everything, read the topics again from their beginnings, and compare."""
        self.watcher.stop()
        code = self.process.stop()
        found = results.read(self.address)
        self.story.checks = results.compare(self.truth, found)
        self.story.checks.append(
            Check(
                "the pipelines stop cleanly on SIGTERM",
                "exit code 0",
                f"exit code {code}",
                not code,
            )
        )
        if self.brokers is not None:
            self.story.checks.append(self.brokers.check([results.SOURCE, *results.TOPICS]))
        self.story.code = [(name, (ROOT / name).read_text()) for name in results.FILES]
        results.tell(self.story, found, self.sender.sent, len(self.sender.broken))

    # ---- looking ---------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return time.monotonic() - self.opened_at

    def _note(self, what: str) -> None:
        self.story.happenings.append((self._now_s(), what))
        self.screen.happened(self._view())

    def _look_after(self) -> None:
        """Whoever died by itself ends the demo."""
        for thread in (self.sender, self.watcher):
            if thread.failure is not None:
                raise DemoFailed(f"the {thread.name} failed: {thread.failure!r}")
        if not self.process.running:
            raise DemoFailed(f"the pipelines ended by themselves:\n{self.process.words()}")

    def _look(self) -> None:
        self._look_after()
        for happened in self.brokers.news() if self.brokers is not None else ():
            self._note(happened)
        now_s, story = self._now_s(), self.story
        story.samples.append(Sample(now_s, self.sender.sent, self.watcher.counted))
        if story.killed_at_s is not None and story.back_at_s is None:
            if any(self.watcher.read[group] > self.read_at_kill[group] for group in GROUPS):
                story.back_at_s = now_s
                away_s = now_s - story.killed_at_s
                self._note(f"counting again after {away_s:.1f} s, from the checkpoint")
        elif (
            story.back_at_s is not None
            and story.caught_up_at_s is None
            and story.samples[-1].lag < self._usual_lag()
        ):
            story.caught_up_at_s = now_s
            self._note(f"caught up {now_s - story.back_at_s:.1f} s later")
        self.screen.show(self._view())

    def _spark(self) -> str:
        """The latest batch of each pipeline, as its process tells it."""
        for reading in self.process.readings():
            if reading.get("query") != "bad-records" and "batch_ms" in reading:
                self.batches[reading["pipeline"]] = reading["batch_ms"] / 1000
        return " · ".join(f"{name} {took_s:.1f} s" for name, took_s in self.batches.items())

    def _usual_lag(self) -> float:
        """The highest lag before the kill: below it, all is as it was."""
        killed_s = self.story.killed_at_s or 0.0
        return max((s.lag for s in self.story.samples if s.at_s < killed_s), default=0) + 1

    def _view(self) -> View:
        samples = self.story.samples
        recent = rates(samples[-120:])
        every = max(1, int(2.5 / LOOK_S))
        down = self.story.killed_at_s is not None and self.story.back_at_s is None
        return View(
            elapsed_s=self._now_s(),
            seconds=self.plan.seconds,
            sent=samples[-1].sent if samples else 0,
            sent_per_s=recent[-1][1] if recent else 0.0,
            broken=len(self.sender.broken),
            read=samples[-1].counted if samples else 0,
            lag=samples[-1].lag if samples else 0,
            rates=[sent for _, sent, _ in recent][::-every][::-1],
            lags=[sample.lag for sample in samples][::-every][::-1],
            pages=self.results.top_pages(5),
            funnel=self.results.funnel_so_far(),
            pipelines=self._spark(),
            running=not down,
            happenings=self.story.happenings,
        )
