"""One cluster, watched by one thread: questions in rounds, a picture after each.

Pages take the newest picture and never wait. A round asks what is due, each kind of question in its
own interval; what a round costs of the processor stretches the wait for the next one, so that a
huge cluster is asked more seldom rather than the console getting busy. A cluster that does not
answer is asked again and again, with a new client when the old one has failed a few times.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.client.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition

from ..config.options import INTERVAL_S
from ..picture import ClusterPicture
from ..series import Sample
from .assemble import Figures, picture_of
from .endpoints import Endpoints
from .ends import EndHistory
from .known import Known
from .lag_times import LagTimes
from .pipelines import Pipelines
from .questions import TIMEOUT_MS, Round
from .rates import Rates
from .samples import samples_of

CPU_SHARE_MAX = 0.03  # of a core, by the thread that asks; the client's own is about as much again
FAILURES_MAX = 3  # rounds that failed before the client is made anew
CLOSE_S = 2.0  # a question to a cluster that does not answer is not waited for
FORGET_MS = 10 * 60 * 1000  # a counter that was not read for so long

log = logging.getLogger("ottla.console")
Taker = Callable[[ClusterPicture, Sequence[Sample]], None]


def now_ms() -> int:
    return int(time.time() * 1000)


class CollectedCluster:
    """The `Cluster` of pages and API; `start` it, and `close` it in the end."""

    def __init__(
        self,
        name: str,
        client_properties: Mapping[str, Any],
        takers: Sequence[Taker] = (),
        *,
        metrics: Sequence[str] = (),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._name = name
        self._properties = dict(client_properties)
        self._takers = tuple(takers)
        self._interval_s = interval_s
        self._picture = ClusterPicture(name)
        self._known = Known()
        self._endpoints = Endpoints(metrics)
        self._due: dict[str, float] = {}
        self._begin_anew()
        self._failures = 0
        self._asking: Admin | None = None  # the thread's own: nobody's request waits behind it
        self._shared: Admin | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"console-{name}", daemon=True)

    def _begin_anew(self) -> None:
        """With no memory of what was, which another cluster's would not go with."""
        self._ends = EndHistory(now_ms())
        self._lag_times = LagTimes(self._ends)
        self._pipelines = Pipelines()
        self._records_in: Rates[TopicPartition] = Rates()
        self._bytes_in: Rates[TopicPartition] = Rates()
        self._due.clear()

    @property
    def name(self) -> str:
        return self._name

    @property
    def client_properties(self) -> Mapping[str, Any]:
        return self._properties

    @property
    def picture(self) -> ClusterPicture:
        return self._picture

    def admin(self) -> Admin:
        with self._lock:
            if self._closed:
                raise KafkaError("the console is stopping")
            if self._shared is None:
                self._shared = Admin(**{"bootstrap_timeout_ms": TIMEOUT_MS, **self._properties})
            return self._shared

    def refresh(self) -> None:
        self._due.clear()
        self._wake.set()

    def ends_of(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """(time in ms, end offset) of a partition during the last hour."""
        return self._ends.points(TopicPartition(topic, partition))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)
        with self._lock:
            if self._shared is not None:
                self._shared.close()

    # The thread

    def _run(self) -> None:
        while not self._closed:
            began, spent = time.monotonic(), time.thread_time()
            try:
                self._round()
            except KafkaError as error:
                self._failed(error)
            except Exception:
                log.exception("%s: the collector failed; it goes on with the next round", self.name)
            spent = time.thread_time() - spent
            pause_s = max(self._interval_s, spent / CPU_SHARE_MAX) - (time.monotonic() - began)
            self._wake.wait(max(0.1, pause_s))
            self._wake.clear()
        self._endpoints.close()
        if self._asking is not None:
            self._asking.close()

    def _failed(self, error: KafkaError) -> None:
        first = str(error).partition("\n")[0]
        self._known.problems.found("cluster", f"it does not answer: {first}", now_ms())
        self._failures += 1
        if self._failures % FAILURES_MAX == 0 and self._asking is not None:
            self._asking.close()
            self._asking = None
        if self._failures == 1:
            log.warning("%s does not answer: %s", self.name, first)
        for broker in self._known.brokers.values():
            broker.answers = False
        self._publish()

    def _round(self) -> None:
        if self._asking is None:
            options = {"bootstrap_timeout_ms": TIMEOUT_MS, "request_timeout_ms": TIMEOUT_MS}
            self._asking = Admin(**{**self._properties, **options})
        questions = Round(self._asking, self._known, now_ms)
        self._endpoints.start_reading()
        before = self._known.cluster_id
        questions.metadata()
        if before not in (None, self._known.cluster_id):
            log.warning("%s is another cluster now: %s", self.name, self._known.cluster_id)
            self._begin_anew()
        for memory in (self._ends, self._lag_times, self._records_in, self._bytes_in):
            memory.forget(self._known.made_again)
        ends = questions.ends()
        asked_ms = now_ms()
        self._ends.add(asked_ms, ends)
        self._records_in.read(asked_ms, ends)
        for what, every_s in EVERY_S.items():
            if self._known.reassignments and what in MOVING_EVERY_S:
                every_s = MOVING_EVERY_S[what]  # somebody looks how far they are
            if self._is_due(what, every_s):
                getattr(questions, what)()
                if what == "log_dirs":
                    self._bytes_in.read(now_ms(), self._known.leader_sizes)
        if self._is_due("forget", FORGET_MS / 1000):
            self._forget()
        questions.finish()
        self._endpoints.finish_reading()
        self._lag_times.read_records(self._asking, self._known)
        self._known.pipelines = self._pipelines.read(self._asking, self._known, now_ms())
        if self._failures:
            log.info("%s answers again", self.name)
        self._failures = 0
        self._known.problems.gone("cluster")
        self._publish()

    def _is_due(self, what: str, every_s: float) -> bool:
        """Whether it is time again; half an interval early rather than late."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        scale = min(1.0, self._interval_s / INTERVAL_S)
        self._due[what] = now + every_s * scale - self._interval_s / 2
        return True

    def _forget(self) -> None:
        self._ends.keep(self._known.ends)
        before = now_ms() - FORGET_MS
        self._records_in.forget_before(before)
        self._bytes_in.forget_before(before)

    def _figures(self, at_ms: int) -> Figures:
        brokers = {}
        for broker, endpoint in self._endpoints.by_broker(list(self._known.brokers)).items():
            about = f"metrics of broker {broker}"
            if endpoint.error is None:
                self._known.problems.gone(about)
            else:
                text = f"{endpoint.url} does not give them: {endpoint.error}"
                self._known.problems.found(about, text, at_ms)
            brokers[broker] = endpoint.broker(at_ms)
        return Figures(self._records_in.now, self._bytes_in.now, self._endpoints.topics(), brokers)

    def _publish(self) -> None:
        at_ms = now_ms()
        figures = self._figures(at_ms)
        picture = picture_of(self.name, self._known, figures, self._lag_times.of(at_ms))
        self._picture = picture
        if self._failures:
            return  # nothing new was found out
        samples = samples_of(picture)
        for take in self._takers:
            try:
                take(picture, samples)
            except Exception:
                log.exception("%s: a picture could not be handed on", self.name)


# How often each is asked, oftener with a shorter interval; what is in no table (metadata, end
# offsets) is asked in every round.
EVERY_S: dict[str, float] = {
    "software": 600,
    "groups": 10,
    "committed": 10,
    "members": 20,
    "reassignments": 20,
    "log_dirs": 30,
    "starts": 60,
    "transactions": 30,
}
MOVING_EVERY_S: dict[str, float] = {"reassignments": 10, "log_dirs": 10}
