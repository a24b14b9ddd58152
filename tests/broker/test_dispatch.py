"""A frame finds its handler or closes the connection; a handler that fails takes nobody down."""

import logging
import struct
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.broker.dispatch import HANDLERS, Dispatcher, Peer, PeerError, Pending
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.header import start_request
from ottla.wire.schema import writer
from tests.broker.harness import BrokerHarness, produce_request


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def header(key: int, version: int, client_id: bytes | None = b"test") -> bytes:
    """A request header, v1; what follows in a flexible version is up to the test."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, length) + (client_id or b"")


def test_an_unknown_api_closes_the_connection(harness: BrokerHarness) -> None:
    """There is no answer to a request whose API nobody knows."""
    with pytest.raises(PeerError, match="API key 999"):
        harness.handle(header(999, 0))
    with pytest.raises(PeerError, match="API key -1"):
        harness.handle(header(-1, 0))


def test_an_api_for_later_closes_the_connection(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ApiVersions does not list is not half-answered."""
    later = 75
    monkeypatch.delitem(HANDLERS, later)
    with pytest.raises(PeerError, match=f"API key {later}"):
        harness.handle(header(later, API[later].versions[0]) + bytes(50))


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (1, 19), (3, 99), (2, -1)])
def test_a_version_that_is_not_served_closes_the_connection(
    harness: BrokerHarness, key: int, version: int
) -> None:
    """As in Kafka, also for Produce 0 to 2, which ApiVersions claims."""
    with pytest.raises(PeerError, match=f"version {version} is not served"):
        harness.handle(header(key, version) + bytes(50))


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_from_the_future_is_answered_in_version_0(
    harness: BrokerHarness, version: int
) -> None:
    """Error 35 and the range of this API in a v0 body, whatever the request's body is (KIP-511)."""
    out = harness.handle(header(18, version) + b"\xff\xff\xff")
    assert bytes(out)[4:] == struct.pack(">ihi", 7, 35, 1) + struct.pack(">hhh", 18, 0, 4)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        struct.pack(">hhi", 18, 0, 1),
        struct.pack(">hhih", 18, 0, 1, 100),
        header(3, 9),
        header(3, 1) + b"\x00\x00",
        header(3, 1) + b"\x7f\xff\xff\xff",
        header(1, 12) + b"\x00" + b"\xff" * 40,
        header(3, 9) + b"\x05",
    ],
    ids=repr,
)
def test_a_malformed_request_closes_the_connection(harness: BrokerHarness, frame: bytes) -> None:
    """Too short, lengths that lie, counts that cannot be: one reason, no answer."""
    with pytest.raises(PeerError, match=r"malformed|shorter"):
        harness.handle(frame)


def test_bytes_behind_a_request_are_ignored(harness: BrokerHarness) -> None:
    """Kafka does not mind them either."""
    out = harness.handle(header(18, 0) + b"what is this?")
    assert struct.unpack_from(">ih", out, 4) == (7, 0)


def test_unknown_tagged_fields_in_the_header_are_skipped(harness: BrokerHarness) -> None:
    """A flexible header may carry tags of the future."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    plain = start_request(18, 3, 7, "test")
    writer(ApiVersionsRequest, 3)(request, plain)
    frame = bytes(plain[4:])
    tagged = frame[:14] + b"\x01\x2a\x03abc" + frame[15:]
    assert frame[14] == 0
    assert bytes(harness.handle(tagged) or b"") == bytes(harness.handle(frame) or b"")


def test_a_client_may_have_no_name(harness: BrokerHarness) -> None:
    """A null client id, and one that is not UTF-8, are both fine."""
    for client_id in (None, b"\xff\xfe"):
        out = harness.handle(header(18, 0, client_id))
        assert struct.unpack_from(">ih", out, 4) == (7, 0)


def failing(*_: object) -> None:
    raise RuntimeError("on purpose")


def test_a_failing_handler_is_answered_and_logged_once(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """UNKNOWN_SERVER_ERROR where the response can carry it, one traceback, and life goes on."""
    harness.create("t")
    harness.broker.partitions.get = failing  # type: ignore[method-assign, assignment]
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
    )
    with caplog.at_level(logging.ERROR):
        response = harness.ask(request, 5)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert harness.ask(ApiVersionsRequest(), 0).error_code == 0


def test_a_failing_fetch_says_so_in_every_version(harness: BrokerHarness) -> None:
    """At the top since version 7, per partition for those who cannot read that."""
    harness.broker.sessions.find = failing  # type: ignore[method-assign, assignment]
    request = FetchRequest(session_id=5, session_epoch=5)
    assert harness.ask(request, 12).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_failing_produce_without_acks_closes(harness: BrokerHarness) -> None:
    """There is no answer that could carry the error."""
    harness.create("t")
    harness.broker.partitions.by_name = None  # type: ignore[assignment]
    with pytest.raises(PeerError, match="acks=0"):
        harness.post(produce_request("t", 0, bytes(100), acks=0), 9)
    harness.broker.partitions.by_name = {}


def test_an_answer_that_cannot_be_written_is_an_error(harness: BrokerHarness) -> None:
    """A handler that returns nonsense at once is answered for with UNKNOWN_SERVER_ERROR."""
    dispatcher = Dispatcher(harness.broker)
    dispatcher.handle(memoryview(header(18, 0)), harness.peer)
    route = next(iter(dispatcher._routes.values()))
    route.handle = lambda request, context: route.response(error_code="what?")
    out = dispatcher.handle(memoryview(header(18, 0)), harness.peer)
    assert struct.unpack_from(">ih", out, 4) == (7, -1)


def test_an_awaitable_fails_through_disconnect(harness: BrokerHarness) -> None:
    """What goes wrong after `handle` has returned closes the connection through its peer."""
    reasons: list[str] = []
    peer = Peer("PLAINTEXT", "", reasons.append)
    harness.handle(header(18, 0))
    route = harness.broker.dispatcher._routes[18 << 16]

    async def refuse(request: object, context: object) -> None:
        raise PeerError("not like this")

    route.handle = refuse
    pending = harness.handle(header(18, 0), peer)
    assert isinstance(pending, Pending)
    assert pending.exclusive
    frames: list[object] = []
    pending.then(frames.append)
    harness.settle()
    assert (reasons, frames) == (["not like this"], [])


def test_a_lost_connection_does_not_tear_work_in_the_middle(harness: BrokerHarness) -> None:
    """A topic that a lost client's Metadata began to create is created."""
    answer = harness.post(MetadataRequest(topics=[MetadataRequestTopic(name="made")]), 9)
    assert answer.pending is not None
    answer.pending.cancel()
    harness.settle()
    assert "made" in harness.broker.image.topics
    assert not answer.ready


def test_requests_are_counted_and_timed(harness: BrokerHarness) -> None:
    """Per API and version, under the names of Kafka's MBeans."""
    harness.peer.received_at = harness.clock.monotonic() + 0.001
    for _ in range(3):
        harness.handle(header(18, 0))
    text = harness.broker.metrics.text()
    name = "kafka_network_RequestMetrics"
    assert f'{name}_RequestsPerSec_total{{request="ApiVersions",version="0"}} 3' in text
    assert f'{name}_TotalTimeMs_count{{request="ApiVersions"}} 3' in text
    assert f'{name}_RequestQueueTimeMs_count{{request="ApiVersions"}} 3' in text


class TestPending:
    """An answer that comes later."""

    @staticmethod
    def encode(response: object, error: BaseException | None) -> object:
        return SimpleNamespace(response=response, error=error)

    def test_either_side_may_come_first(self) -> None:
        """`then` before and after `resolve` both get the frame, once."""
        for early in (True, False):
            frames: list[object] = []
            pending = Pending()
            pending.on_settled(self.encode)  # type: ignore[arg-type]
            if early:
                pending.then(frames.append)
            pending.resolve("first")
            pending.resolve("second")
            if not early:
                pending.then(frames.append)
            assert [frame.response for frame in frames] == ["first"]  # type: ignore[attr-defined]

    def test_a_cancelled_answer_is_forgotten(self) -> None:
        """The handler gives back what it holds, once, and nobody is called."""
        frames: list[object] = []
        gone: list[str] = []
        pending = Pending()
        pending.on_settled(self.encode)  # type: ignore[arg-type]
        pending.on_cancel(lambda: gone.append("gone"))
        pending.then(frames.append)
        pending.cancel()
        pending.cancel()
        pending.resolve("late")
        assert (frames, gone, pending.done) == ([], ["gone"], True)

    def test_an_answered_request_has_nothing_to_give_back(self) -> None:
        """Cancelling after the answer does not reach the handler."""
        gone: list[str] = []
        pending = Pending()
        pending.on_cancel(lambda: gone.append("gone"))
        pending.resolve("here")
        pending.cancel()
        assert gone == []
