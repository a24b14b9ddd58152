"""A request frame finds its handler; a response object becomes a frame.

    header -> route (API and version) -> compiled reader -> handler -> compiled writer -> frame

A route is made the first time its API and version are asked for (the handler's module is imported
then, so starting costs nothing) and kept; after that a request costs one dictionary look-up before
its reader runs. `handle` raises `PeerError` when the connection must close: a malformed request, an
API or version that is not served, a fault that no response can carry. A handler that fails is
answered with UNKNOWN_SERVER_ERROR where its response can say so; it never takes the server down.
Bytes after the end of a well-formed request are ignored, as Kafka ignores them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.broker.client_quotas import Metered
from ottla.broker.context import Context, Encoded, Peer, PeerError, Pending
from ottla.metrics import TIME_BOUNDS_S, Metrics
from ottla.wire.apis import EVERY_API, Api
from ottla.wire.errors import ErrorCode
from ottla.wire.header import finish, skip_tagged_fields, start_response
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import BytesFile, FileRange
from ottla.wire.schema import reader, writer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.wire.out import Out

__all__ = ["HANDLERS", "Context", "Dispatcher", "Peer", "PeerError", "Pending"]

log = logging.getLogger("ottla.broker")

API_VERSIONS = 18
# An encoded body up to this size is copied behind its header: one buffer instead of two.
ENCODED_COPY_BYTES_MAX = 16 * 1024

METRICS = "kafka_network_RequestMetrics"
TIME_BOUNDS_MS = tuple(bound_s * 1000 for bound_s in TIME_BOUNDS_S)

# The APIs this broker serves, and in ApiVersions says it serves: key -> file in `handlers/`.
HANDLERS: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "create_delegation_token",
    39: "renew_delegation_token",
    40: "expire_delegation_token",
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    64: "unregister_broker",
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}

# What only brokers may ask: answered on the inter-broker listener alone, and by a broker that is
# one of several.
BROKER_HANDLERS: dict[int, str] = {
    56: "alter_partition",
    67: "allocate_producer_ids",
    10_000: "follow_feed",
    10_001: "forward",
    10_002: "register_broker",
    10_003: "confirm_deletions",
    10_004: "identify_broker",
    10_005: "controlled_shutdown",
    10_006: "known_leader_epoch",
}

# API key and version as one number, correlation id, length of the client id.
_read_header_start = struct.Struct(">iih").unpack_from
_HEADER_START_BYTES = 10
_read_key_and_version = struct.Struct(">hh").unpack_from

_MALFORMED = (MalformedMessage, IndexError, struct.error)

Handle = Callable[[Any, Context], Any]
Failure = Callable[[Any, ErrorCode, Context], Any]


Read = Callable[[Any, int], tuple[Any, int]]

# The heartbeats of groups of all kinds: a member sends the same bytes again and again.
REPEATED = frozenset((12, 68, 76))
REPEATED_MAX = 4096
REPEATED_BYTES_MAX = 256


class RepeatedRequests:
    """Decodes equal requests once: reading one costs more than all else about it. Nobody changes
    a request."""

    __slots__ = ("_known", "_read")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, int]] = {}

    def read(self, frame: memoryview, position: int) -> tuple[Any, int]:
        data = bytes(frame[position:])
        found = self._known.get(data)
        if found is None:
            found = self._read(memoryview(data), 0)
            if len(data) <= REPEATED_BYTES_MAX:
                if len(self._known) >= REPEATED_MAX:
                    self._known.clear()
                self._known[data] = found
        return found


class Route:
    """All that is known beforehand about one API in one version, and what has been counted."""

    __slots__ = (
        "api",
        "failure",
        "flexible",
        "flexible_response",
        "handle",
        "queue_time",
        "read",
        "requests",
        "response",
        "total_time",
        "version",
        "write",
    )

    def __init__(
        self, api: Api, version: int, handle: Handle, failure: Failure | None, metrics: Metrics
    ) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.failure = failure
        self.read: Read = reader(api.request, version)
        if api.key in REPEATED:
            self.read = RepeatedRequests(self.read).read
        self.write: Callable[[Any, Out], object] = writer(api.response, version)
        self.response: type[Any] = api.response
        self.flexible = version >= api.flexible_from
        self.flexible_response = api.flexible_response(version)
        self.requests = metrics.counter(
            f"{METRICS}_RequestsPerSec", "Requests.", request=api.name, version=str(version)
        )
        self.queue_time = metrics.timer(
            f"{METRICS}_RequestQueueTimeMs",
            "From the arrival of a request's last bytes until its handling begins.",
            TIME_BOUNDS_MS,
            request=api.name,
        )
        self.total_time = metrics.timer(
            f"{METRICS}_TotalTimeMs",
            "From the beginning of a request's handling until its answer is there.",
            TIME_BOUNDS_MS,
            request=api.name,
        )

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}"


class Dispatcher:
    """Answers frames on behalf of one broker. One per broker, shared by all its connections."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._quotas = broker.quotas
        self._monotonic = broker.clock.monotonic
        self._routes: dict[int, Route] = {}
        self._tasks: dict[asyncio.Future[Any], None] = {}  # in the order of their beginning

    def handle(self, frame: memoryview, peer: Peer) -> Out | Pending | None:
        """Answer one frame (without its length); None when nothing is to be sent (acks=0)."""
        started = self._monotonic()
        if peer.login is not None and (token := peer.login.admit(frame)) is not None:
            return token
        try:
            key_and_version, correlation_id, client_id_size = _read_header_start(frame)
            route = self._routes.get(key_and_version)
            if route is None:
                route = self._find_route(*_read_key_and_version(frame))
            position = _HEADER_START_BYTES
            client_id = None
            if client_id_size >= 0:
                position += client_id_size
                client_id_bytes = bytes(frame[_HEADER_START_BYTES:position])
                if client_id_bytes != peer.client_id_bytes:
                    peer.client_id_bytes = client_id_bytes
                    peer.client_id = str(client_id_bytes, "utf-8", "replace")
                client_id = peer.client_id
            if route.flexible:
                if frame[position]:
                    position = skip_tagged_fields(frame, position, route.api.name)
                else:
                    position += 1
            request, _ = route.read(frame, position)
        except _MALFORMED as error:
            raise PeerError(_malformed(frame, error)) from error
        route.requests.value += 1
        if peer.received_at:
            route.queue_time.observe((started - peer.received_at) * 1000)
        if self._quotas.active is not None:
            metered = Metered(self._broker, peer, route.version, correlation_id, client_id)
            metered.frame_bytes = len(frame)
            return self._metered(route, request, metered, started)
        context = Context(self._broker, peer, route.version, correlation_id, client_id)
        try:
            answer = route.handle(request, context)
            if answer.__class__ is route.response:
                out = start_response(correlation_id, route.flexible_response)
                route.write(answer, out)
                finish(out)
                route.total_time.observe((self._monotonic() - started) * 1000)
                return out
        except PeerError:
            raise
        except Exception as error:
            return self._encode(route, request, context, started, None, error)
        if answer.__class__ is Encoded:
            route.total_time.observe((self._monotonic() - started) * 1000)
            return _framed(answer, correlation_id, route)
        if answer is None:
            route.total_time.observe((self._monotonic() - started) * 1000)
            return None
        return self._later(route, request, context, started, answer)

    def _metered(
        self, route: Route, request: Any, context: Metered, started: float
    ) -> Out | Pending | None:
        """As `handle` goes on, while there are quotas of clients."""
        context.started_s = started
        try:
            answer = route.handle(request, context)
        except PeerError:
            raise
        except Exception as error:
            return self._encode(route, request, context, started, None, error)
        finally:
            context.spent_s = self._monotonic() - started
        if answer is None or answer.__class__ in (route.response, Encoded):
            return self._encode(route, request, context, started, answer, None)
        return self._later(route, request, context, started, answer)

    def close(self) -> None:
        """Give up the answers still being worked on."""
        for task in tuple(self._tasks):
            task.cancel()

    def _later(
        self, route: Route, request: Any, context: Context, started: float, answer: Any
    ) -> Pending:
        pending = answer if isinstance(answer, Pending) else self.run(answer)

        def settled(response: Any, error: BaseException | None) -> Out | None:
            try:
                return self._encode(route, request, context, started, response, error)
            except PeerError as fault:
                pending.cancel()
                if context.peer.disconnect is not None:
                    context.peer.disconnect(str(fault))
                return None

        pending.on_settled(settled)
        return pending

    def run(self, awaitable: Awaitable[Any], *, exclusive: bool = True) -> Pending:
        """Run an awaitable to its end, whether or not the connection is still open when it ends.

        What it does (creating a topic, say) must not be torn in the middle by a lost connection.
        """
        task = asyncio.ensure_future(awaitable)
        self._tasks[task] = None
        pending = Pending(exclusive=exclusive)

        def done(task: asyncio.Future[Any]) -> None:
            del self._tasks[task]
            if task.cancelled():
                pending.fail(PeerError("the broker is stopping"))
            elif (error := task.exception()) is not None:
                pending.fail(error)
            else:
                pending.resolve(task.result())

        task.add_done_callback(done)
        return pending

    def _encode(
        self,
        route: Route,
        request: Any,
        context: Context,
        started: float,
        response: Any,
        error: BaseException | None,
    ) -> Out | None:
        """A response, or the answer for an error, as a frame; `PeerError` when it cannot be one."""
        route.total_time.observe((self._monotonic() - started) * 1000)
        if isinstance(error, PeerError):
            raise error
        if error is not None:
            log.error(
                "%s from %s failed", route, context.peer.address or "a client", exc_info=error
            )
            response = self.failed(route, request, ErrorCode.UNKNOWN_SERVER_ERROR, context)
        if context.__class__ is Metered:
            response = self._quotas.charge(context, route.api, response)
        if response is None:
            return None
        if isinstance(response, Encoded):
            return _framed(response, context.correlation_id, route)
        out = start_response(context.correlation_id, route.flexible_response)
        try:
            route.write(response, out)
        except Exception as fault:
            log.exception("the answer to %s cannot be written", route)
            raise PeerError(f"the answer to {route} could not be written") from fault
        finish(out)
        return out

    def failed(self, route: Route, request: Any, error_code: ErrorCode, context: Context) -> Any:
        """The response that tells of an error; `PeerError` where none can."""
        return failed(route.api, route.failure, request, error_code, context)

    def _find_route(self, key: int, version: int) -> Route:
        name = HANDLERS.get(key)
        between_brokers = name is None and self._broker.in_cluster
        if between_brokers:
            name = BROKER_HANDLERS.get(key)
        api = EVERY_API.get(key)
        if api is None or name is None:
            raise PeerError(f"API key {key} (version {version}) is not served")
        module = import_module(f"ottla.broker.handlers.{name}")
        if api.serves(version):
            failure = getattr(module, "failure", None)
            handle: Handle = module.handle
            if self._broker.rules is not None:
                from ottla.broker.authorization.dispatching import guarded

                handle = guarded(self._broker.rules, api, version, handle, failure)
            if between_brokers:
                handle = self._for_brokers(api, handle)
            elif self._broker.in_cluster:
                handle = self._broker.image_waits.around(key, handle)
            route = Route(api, version, handle, failure, self._broker.metrics)
            self._routes[key << 16 | version] = route
            return route
        if key == API_VERSIONS:
            # KIP-511: the client learns the range from a v0 answer; its body is not looked at.
            route = Route(api, 0, module.unsupported_version, None, self._broker.metrics)
            route.read = _read_nothing
            return route
        lowest, highest = api.versions
        raise PeerError(
            f"{api.name} version {version} is not served, only {lowest} to {highest} are"
        )

    def _for_brokers(self, api: Api, handle: Handle) -> Handle:
        def checked(request: Any, context: Context) -> Any:
            # Until there are principals the listener decides who is a broker.
            if context.peer.listener_name != self._broker.settings.inter_broker_listener:
                raise PeerError(f"{api.name} is for brokers, and not served on this listener")
            return handle(request, context)

        return checked


def failed(
    api: Api, failure: Failure | None, request: Any, error_code: ErrorCode, context: Context
) -> Any:
    """The response of an API that tells of an error; `PeerError` where none can.

    `failure` makes it where the response has more than one place for it.
    """
    if failure is not None:
        return failure(request, error_code, context)
    if hasattr(api.response, "error_message"):
        return api.response(error_code=error_code, error_message=error_code.message)
    if hasattr(api.response, "error_code"):
        return api.response(error_code=error_code)
    raise PeerError(
        f"{api.name} v{context.api_version} is answered with {error_code.name}, for which its "
        "response has no place"
    )


def _framed(answer: Encoded, correlation_id: int, route: Route) -> Out:
    """The frame of an answer that is encoded already; a large body is not copied into it."""
    out = start_response(correlation_id, route.flexible_response)
    if len(answer.body) > ENCODED_COPY_BYTES_MAX:
        out.add_blob(FileRange(BytesFile(answer.body), 0, len(answer.body)))
    else:
        out += answer.body
    return finish(out)


def _read_nothing(frame: memoryview, position: int) -> tuple[None, int]:
    return None, position


def _malformed(frame: memoryview, error: Exception) -> str:
    if len(frame) < _HEADER_START_BYTES:
        return f"a request of {len(frame)} bytes is shorter than a request header"
    key, version = _read_key_and_version(frame)
    api = EVERY_API.get(key)
    return f"malformed {api.name if api else key} v{version} request: {error}"
