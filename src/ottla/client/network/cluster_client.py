"""The core of producer, consumer and admin: requests to brokers, and the cluster's metadata.

Any thread may call. Work happens in one background thread (io_thread.py); a method gives a
`concurrent.futures.Future` (its callbacks run in that thread and must not wait), or waits itself if
its docstring says so; a method that waits must not be called from that thread.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, TypeAlias, TypeVar, overload

from ottla.client.randomness import RANDOM
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.schema import RequestFor, Struct

from ..errors import IllegalStateError, KafkaError, KafkaTimeoutError, NoBrokersAvailable
from ..typed_config import ClientConfig, ConsumerConfig, ProducerConfig
from .cluster_metadata import Cluster
from .connection import Request
from .connection_pool import ANY, CONTROLLER, Connections
from .coordinators import Coordinators
from .io_thread import Loop, Timer
from .metadata_updater import Metadata

__all__ = ["ANY", "CONTROLLER", "AnyClient", "Client", "ConsumerClient", "ProducerClient"]

log = logging.getLogger("ottla.client")
numbers = itertools.count(1)
UNKNOWN_S_MAX = 5.0  # a new topic is known to all brokers long before
T = TypeVar("T")
S = TypeVar("S", bound=Struct)
C_co = TypeVar("C_co", bound=ClientConfig, covariant=True)


class Client(Generic[C_co]):
    """One background thread, its connections, the metadata and the coordinators."""

    def __init__(self, config: C_co, kind: str = "client") -> None:
        self.config = config
        if config["client_id"] is None:
            config["client_id"] = f"ottla-{kind}-{next(numbers)}"
        self.loop = Loop(f"{config['client_id']}-network")
        self.connections = Connections(self.loop, config)
        self.metadata = Metadata(self.loop, self.connections, config)
        self.coordinators = Coordinators(self)

    @property
    def cluster(self) -> Cluster:
        """What is known of the cluster now."""
        return self.connections.cluster

    @property
    def features(self) -> dict[str, int]:
        """Finalized features and their levels, as of the last connection."""
        return self.connections.features

    @overload
    def submit(
        self,
        node_id: int,
        message: RequestFor[S],
        *,
        timeout_ms: float | None = None,
        channel: str = "",
        version_max: int = VERSION_MAX,
    ) -> Future[S]: ...

    @overload
    def submit(
        self,
        node_id: int,
        message: RequestFor[S],
        *,
        timeout_ms: float | None = None,
        channel: str = "",
        answered: bool,
        version_max: int = VERSION_MAX,
    ) -> Future[S | None]: ...

    def submit(
        self,
        node_id: int,
        message: RequestFor[S],
        *,
        timeout_ms: float | None = None,
        channel: str = "",
        answered: bool = True,
        version_max: int = VERSION_MAX,
    ) -> Future[S] | Future[S | None]:
        """Ask one broker (`ANY`, `CONTROLLER` or an id) once; the future has the answer.

        It fails with `KafkaConnectionError`, `KafkaTimeoutError`, `RequestTimedOutError` (all
        retriable) or `UnsupportedVersionError`. Requests on one channel are answered in order, so
        what must not wait behind a long poll goes on a channel of its own. `answered=False` is for
        Produce with acks=0, and its result is None.
        """
        if timeout_ms is None:
            timeout_ms = self.config["request_timeout_ms"]
        request = Request(
            message,
            time.monotonic() + timeout_ms / 1000,
            answered=answered,
            version_max=version_max,
        )
        if self.loop.inside:
            self.connections.send(node_id, request, channel)
        else:
            self.loop.call_soon(self.connections.send, node_id, request, channel)
        return request.future

    def call(self, node_id: int, message: RequestFor[S], *, timeout_ms: float | None = None) -> S:
        """Ask once and wait for the answer."""
        return self.wait(self.submit(node_id, message, timeout_ms=timeout_ms))

    def wait(self, future: Future[T], timeout_ms: float | None = None) -> T:
        """The future's result, waiting for it; its exception is raised."""
        if self.loop.inside:
            raise IllegalStateError(
                "this call waits, and a callback of the client may not wait\n"
                "Try: do it in your own thread, after the callback"
            )
        try:
            return future.result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeoutError:
            reasons = "; ".join(self.connections.failures())
            raise KafkaTimeoutError(
                f"not done within {timeout_ms:.0f} ms" + (f" ({reasons})" if reasons else "")
            ) from None

    def retrying(self, attempt: Callable[[float], T], timeout_ms: float | None = None) -> T:
        """`attempt(ms_left)` until it does not raise a retriable error, or time is up; waits.

        A topic that stays unknown is an error sooner: it may be new, but not for long.
        """
        if timeout_ms is None:
            timeout_ms = self.config["request_timeout_ms"]
        began = time.monotonic()
        deadline = began + timeout_ms / 1000
        for tries in itertools.count():
            left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
            try:
                return attempt(left_ms)
            except KafkaError as problem:
                pause_s = self.backoff_s(tries)
                soon = time.monotonic() + pause_s
                unknown = getattr(problem, "errno", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not problem.retriable or soon >= deadline:
                    raise
                if unknown and soon > began + UNKNOWN_S_MAX:
                    raise
                if problem.invalid_metadata:
                    self.metadata.refresh()
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    def backoff_s(self, tries: int) -> float:
        """How long to wait before trying again, the more often the longer, with jitter."""
        base, most = self.config["retry_backoff_ms"], self.config["retry_backoff_max_ms"]
        pause_ms: float = min(base * 2.0 ** min(tries, 20), max(base, most))
        return pause_ms * RANDOM.uniform(0.8, 1.2) / 1000

    def bootstrap(self, timeout_ms: float | None = None) -> Cluster:
        """The first metadata of the cluster; waits, and raises with advice if no broker answers."""
        if timeout_ms is None:
            timeout_ms = self.config["bootstrap_timeout_ms"]
        self.metadata.warn_after_s = 1.0
        future = self.metadata.refresh()
        try:
            self.wait(future, timeout_ms)
        except KafkaTimeoutError:
            raise NoBrokersAvailable(self.metadata.no_broker_text()) from None
        return self.cluster

    def refresh(self, topics: Iterable[str] = ()) -> Future[Cluster]:
        """Ask for Metadata of these topics and all that are tracked."""
        return self.metadata.refresh(topics)

    def coordinator(self, key: str, kind: str = "group") -> Future[int]:
        """The id of the broker that coordinates a group or a transactional id ("transaction")."""
        return self.coordinators.find(key, kind)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run in the background thread."""
        self.loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Run in the background thread after a while."""
        return self.loop.call_later(delay_s, callback, *args)

    @property
    def closed(self) -> bool:
        return self.loop.broken is not None

    def close(self, timeout_s: float | None = 5.0) -> None:
        """End all requests and the thread. May be called twice."""
        if self.closed:
            return
        self.loop.call_soon(self.connections.close, KafkaError("the client is closed"))
        self.loop.call_soon(self.metadata.close)
        self.loop.stop(timeout_s)


AnyClient: TypeAlias = Client[ClientConfig]
ProducerClient: TypeAlias = Client[ProducerConfig]
ConsumerClient: TypeAlias = Client[ConsumerConfig]
