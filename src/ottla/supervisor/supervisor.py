"""The parent of a cluster's broker processes: starts them, watches them, stops them.

    up      all brokers at once; ready when every one of them is, or could not be started. One that
            could not is reported, with the end of its log; the others serve without it
    watch   a broker that has ended is reported, and started again only with `restart`, or when a
            command asks for it (a file and SIGHUP); a holder of the controller's lock that hangs is
            killed
    down    at SIGTERM or SIGINT: all but the controller first, then the controller. A second
            signal kills them

It runs in the main thread of a process of its own, for it takes over that process's signals.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from ottla.metadata_store.shared import LOCK_FILE as CONTROLLER_LOCK_FILE
from ottla.supervisor.back_off import BackOff
from ottla.supervisor.broker_process import BrokerProcess
from ottla.supervisor.holder import HolderWatch
from ottla.supervisor.plan import LOCK_FILE, ClusterPlan, hold, start_request
from ottla.supervisor.ports import is_free
from ottla.supervisor.processes import identify, lock_holder, running
from ottla.supervisor.state import ClusterState, read_state, write_state

LOOK_EVERY_S = 0.25
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class ClusterProblem(Exception):
    """Why a cluster cannot be started; one sentence, and what to try."""

    def __init__(self, fact: str, hint: str) -> None:
        super().__init__(fact)
        self.hint = hint


class Supervisor:
    """One run of a cluster, from its start to its end."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        session_timeout_s: float,
        restart: bool = False,
        controlled: bool = False,
        report: Callable[[str], object],
        on_ready: Callable[[str], object],
    ) -> None:
        """`report` is called with a line for an operator, `on_ready` with the addresses of the
        brokers that have started.

        `controlled`: everything ends when stdin does, and the brokers when this process does.
        """
        self.plan = plan
        self._restart = restart
        self._controlled = controlled
        self._report = report
        self._on_ready = on_ready
        self._brokers = [
            BrokerProcess(plan, broker, controlled=controlled) for broker in plan.brokers
        ]
        self._watch = HolderWatch(session_timeout_s)
        self._stop_signals = 0
        self._start_wanted = False
        self._restart_at_s: dict[int, float] = {}
        self._started_at_s: dict[int, float] = {}
        self._back_off = BackOff()
        self._not_started: dict[int, str] = {}  # why, by node id
        self._wake_reader, self._wake_writer = -1, -1

    def run(self) -> int:
        """Return when the cluster has stopped: 0, or 1 if a broker could never be started.

        Raises ClusterProblem if none could be.
        """
        lock = self._lock_directory()
        try:
            self._check_nothing_runs()
            self._take_signals()
            try:
                self._start_all()
                started = [each.broker.address for each in self._brokers if each.ready]
                if started:
                    self._on_ready(",".join(started))
                while not self._stop_signals:
                    self._look()
                    self._wait()
            finally:
                self._stop_all()
            return 1 if self._not_started else 0
        finally:
            self._give_back_signals()
            os.close(lock)

    # Start

    def _lock_directory(self) -> int:
        directory = self.plan.directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ClusterProblem(
                f"cannot use {directory}: {error.strerror or error}",
                "a directory that you may write to: ottla cluster up --dir DIRECTORY",
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ClusterProblem(
                f"the cluster in {directory} is running already",
                f"ottla cluster status --dir {directory}",
            ) from None
        return lock

    def _start_all(self) -> None:
        self._take_requests()  # of commands that found no supervisor any more
        for broker in self._brokers:
            hold(self.plan.directory, broker.node_id).unlink(missing_ok=True)
            self._start(broker)
        self._write_state()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._stop_signals:
            self._note_ready()
            for broker in self._brokers:
                ended = broker.ended()
                if ended is not None:
                    self._note_not_started(broker, f"ended {ended}")
                    self._start_again_later(broker, time.monotonic())
            late = [broker for broker in self._brokers if broker.running and not broker.ready]
            if not late:
                break
            if time.monotonic() > deadline_s:
                for broker in late:
                    self._note_not_started(broker, f"was not ready within {START_TIMEOUT_S:g} s")
                break
            self._wait()
        if len(self._not_started) == len(self._brokers) and not self._stop_signals:
            first = self._brokers[0]
            raise ClusterProblem(
                f"no broker could be started; {self._not_started[first.node_id]}",
                f"look at {first.log_path}",
            )

    def _start(self, broker: BrokerProcess) -> None:
        self._started_at_s[broker.node_id] = time.monotonic()
        broker.start()

    def _note_not_started(self, broker: BrokerProcess, what: str) -> None:
        words = broker.last_words()
        reason = f"broker {broker.node_id} {what}" + (f":\n{words}" if words else "")
        self._not_started[broker.node_id] = reason
        self._write_state()
        if len(self._not_started) < len(self._brokers):
            self._report(f"{reason}\nthe others go on without it; look at {broker.log_path}")

    def _check_nothing_runs(self) -> None:
        state = read_state(self.plan.directory)
        for broker in state.brokers if state is not None else ():
            if running(broker.process):
                assert broker.process is not None
                raise ClusterProblem(
                    f"broker {broker.node_id} of {self.plan.directory} is still running "
                    f"(process {broker.process.pid})",
                    f"ottla cluster down --dir {self.plan.directory}",
                )
        if state is not None:
            return  # brokers of a cluster that is there start though one of them cannot
        for planned in self.plan.brokers:
            if not is_free(planned.port, planned.host):
                raise ClusterProblem(
                    f"cannot listen on {planned.address}: the port is in use",
                    "ottla cluster up --port ANOTHER, the first of the brokers' ports",
                )

    # Watch

    def _look(self) -> None:
        self._note_ready()
        now_s = time.monotonic()
        for broker in self._brokers:
            ended = broker.ended()
            if ended is not None:
                self._note_end(broker, ended, now_s)
        if self._start_wanted:
            self._start_wanted = False
            self._restart_at_s |= dict.fromkeys(self._take_requests(), now_s)
        for broker in self._brokers:
            due_s = self._restart_at_s.get(broker.node_id)
            if due_s is None or due_s > now_s or broker.running:
                continue
            if not hold(self.plan.directory, broker.node_id).exists():
                del self._restart_at_s[broker.node_id]
                self._start(broker)
                self._write_state()
        self._end_hanging_holder(now_s)

    def _take_requests(self) -> list[int]:
        """The brokers that a command asks to be started, and that do not run.

        One whose process has ended may not be reaped yet, while threads of it end: it is started
        as soon as it is.
        """
        found = []
        for broker in self._brokers:
            request = start_request(self.plan.directory, broker.node_id)
            if request.exists():
                request.unlink(missing_ok=True)
                if not running(broker.state().process):
                    found.append(broker.node_id)
        return found

    def _note_ready(self) -> None:
        for broker in self._brokers:
            if broker.became_ready():
                self._not_started.pop(broker.node_id, None)
                self._report(f"broker {broker.node_id} is ready on {broker.broker.address}")
                self._write_state()

    def _note_end(self, broker: BrokerProcess, ended: str, now_s: float) -> None:
        self._report(f"broker {broker.node_id} ended {ended}")
        self._write_state()
        self._start_again_later(broker, now_s)

    def _start_again_later(self, broker: BrokerProcess, now_s: float) -> None:
        if self._restart:
            ran_s = now_s - self._started_at_s[broker.node_id]
            pause_s = self._back_off.pause_s(broker.node_id, ran_s)
            self._restart_at_s[broker.node_id] = now_s + pause_s

    def _end_hanging_holder(self, now_s: float) -> None:
        path = self.plan.metadata_directory / CONTROLLER_LOCK_FILE
        holder = self._holder()
        if not self._watch.hangs(now_s, holder, modified_s(path)):
            return
        for broker in self._brokers:
            if broker.pid == holder:
                self._report(f"broker {broker.node_id} is the controller and hangs: it is killed")
                broker.send(signal.SIGKILL)

    def _holder(self) -> int | None:
        """The process that has the controller's lock."""
        return lock_holder(self.plan.metadata_directory / CONTROLLER_LOCK_FILE)

    # Stop

    def _stop_all(self) -> None:
        holder = self._holder()
        controller = [each for each in self._brokers if each.pid is not None and each.pid == holder]
        others = [each for each in self._brokers if each not in controller]
        for group in (others, controller):
            self._stop_group(group)
        self._write_state(supervised=False)

    def _stop_group(self, group: list[BrokerProcess]) -> None:
        signals = self._stop_signals
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for broker in group:
            broker.send(signal.SIGTERM)
        while any(broker.running for broker in group):
            for broker in group:
                ended = broker.ended()
                if ended is not None and ended != "with exit code 0":
                    self._report(f"broker {broker.node_id} ended {ended}")
            if time.monotonic() > deadline_s or self._stop_signals > max(signals, 1):
                for broker in group:
                    broker.send(signal.SIGKILL)
            self._wait()

    # Signals

    def _take_signals(self) -> None:
        self._wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._signalled) for number in SIGNALS}

    def _give_back_signals(self) -> None:
        if self._wake_reader < 0:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        self._wake_reader = -1

    def _signalled(self, number: int, frame: object) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop_signals += 1
        elif number == signal.SIGHUP:
            self._start_wanted = True

    def _wait(self) -> None:
        """Until a signal comes, or it is time to look again."""
        waited = [each.output for each in self._brokers if each.output is not None]
        waited += [self._wake_reader, 0] if self._controlled else [self._wake_reader]
        ready, _, _ = select.select(waited, [], [], LOOK_EVERY_S)
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if 0 in ready and not os.read(0, 4096):
            self._controlled = False
            self._stop_signals += 1

    def _write_state(self, *, supervised: bool = True) -> None:
        process = identify(os.getpid()) if supervised else None
        brokers = tuple(broker.state() for broker in self._brokers)
        write_state(self.plan.directory, ClusterState(process, brokers))


def modified_s(path: Path) -> float:
    """When a file was last modified; 0 if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
