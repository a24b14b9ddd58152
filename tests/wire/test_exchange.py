"""Requests and responses of one connection without I/O: in any pieces, in order, in any version."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import Exchange, Request, Settled, UnexpectedResponse, VersionsRefused
from ottla.wire.frames import BUFFER_BYTES, Frame, FrameReader, OversizedFrame
from ottla.wire.header import finish, read_request_header, start_response
from ottla.wire.malformed import MalformedMessage, UnsupportedVersion, UnwritableMessage
from ottla.wire.out import FileRange
from ottla.wire.schema import reader, writer

FRAME_BYTES_MAX = 1 << 20


def exchange_of(**options: Any) -> Exchange[Request]:
    return Exchange(FrameReader(FRAME_BYTES_MAX), **{"client_id": "me", **options})


class Peer:
    """The other side: reads the requests in an exchange's outgoing bytes, writes responses."""

    def __init__(self, exchange: Exchange[Request]) -> None:
        self.exchange = exchange
        self.frames = FrameReader(FRAME_BYTES_MAX)
        self.advertised = {key: api.versions for key, api in API.items()}

    def requests(self) -> Iterator[tuple[int, int, int, Any]]:
        """API key, version, correlation id and message of each request that was sent since."""
        parts = self.exchange.next_parts(10_000)
        data = b"".join(parts)
        self.exchange.sent(len(data))
        for frame in self.frames.feed(data):
            header = read_request_header(frame.data)
            read = reader(API[header.api_key].request, header.api_version)
            message, _ = read(frame.data, header.body_position)
            yield header.api_key, header.api_version, header.correlation_id, message

    def versions(self, error_code: int = 0) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.advertised.items()
        ]
        feature = FinalizedFeatureKey(name="metadata.version", max_version_level=25)
        return ApiVersionsResponse(
            error_code=error_code, api_keys=keys, finalized_features=[feature]
        )


def response(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """One response as bytes, with its size."""
    out = start_response(correlation_id, API[api_key].flexible_response(version))
    writer(type(message), version)(message, out)
    return bytes(finish(out))


def negotiated(**advertised: tuple[int, int]) -> tuple[Exchange[Request], Peer]:
    """An exchange that has agreed on versions; `v3=(0, 5)` changes those of API 3."""
    exchange = exchange_of()
    peer = Peer(exchange)
    for name, versions in advertised.items():
        peer.advertised[int(name[1:])] = versions
    exchange.connected()
    [(key, version, correlation_id, _)] = peer.requests()
    assert exchange.received(response(key, version, correlation_id, peer.versions())) == []
    assert exchange.ready
    return exchange, peer


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


# Versions


def test_requests_wait_for_the_versions_and_go_in_the_highest_of_both() -> None:
    """ApiVersions is first and alone; what was asked for meanwhile follows in order."""
    exchange = exchange_of(software=("ottla", "1.2"))
    peer = Peer(exchange)
    peer.advertised[3] = (0, 5)
    asked = [Request(MetadataRequest(topics=[])), Request(HeartbeatRequest(group_id="g"))]
    for request in asked:
        assert exchange.send(request) == []
    exchange.connected()
    [(key, version, correlation_id, message)] = peer.requests()
    assert (key, version) == (18, API[18].versions[1])
    assert (message.client_software_name, message.client_software_version) == ("ottla", "1.2")
    assert exchange.open_count == 3
    exchange.received(response(key, version, correlation_id, peer.versions()))
    assert [each[:2] for each in peer.requests()] == [(3, 5), (12, API[12].versions[1])]
    assert exchange.features == {"metadata.version": 25}
    assert list(exchange.in_flight) == asked


def test_an_old_peer_is_asked_again_in_a_version_it_has() -> None:
    """KIP-511: it answers in version 0 with the versions it has; asked twice at most."""
    exchange = exchange_of()
    peer = Peer(exchange)
    peer.advertised[18] = (0, 2)
    exchange.connected()
    [(_, _, first, _)] = peer.requests()
    refusal = peer.versions(ErrorCode.UNSUPPORTED_VERSION)
    assert exchange.received(response(18, 0, first, refusal)) == []
    [(_, version, second, _)] = peer.requests()
    assert (version, exchange.ready) == (2, False)
    with pytest.raises(VersionsRefused) as caught:
        exchange.received(response(18, 0, second, refusal))
    assert caught.value.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_what_the_peer_does_not_have_is_settled_with_an_error() -> None:
    """An API, a version or a message that cannot be sent fails alone; the exchange goes on."""
    exchange, peer = negotiated(v10=(0, 0), v12=(4, 4))
    old = Request(FindCoordinatorRequest(), version_max=3)
    assert exchange.send(old) == []
    assert [each[:2] for each in peer.requests()] == [(10, 0)]
    capped = Request(HeartbeatRequest(group_id="g"), version_max=3)
    [(request, _, error)] = exchange.send(capped)
    assert request is capped
    assert isinstance(error, UnsupportedVersion)
    [(_, _, error)] = exchange.send(Request(HeartbeatRequest(group_id=7)))  # type: ignore[arg-type]
    assert isinstance(error, UnwritableMessage)
    assert list(peer.requests()) == []
    assert list(exchange.in_flight) == [old]


def test_a_request_without_a_response_is_settled_when_it_is_written() -> None:
    """Produce with acks=0: the next response belongs to the next request."""
    exchange, peer = negotiated()
    silent = Request(ProduceRequest(acks=0, topic_data=[]), answered=False)
    assert exchange.send(silent) == [Settled(silent)]
    asked = Request(HeartbeatRequest(group_id="g"))
    exchange.send(asked)
    *_, (key, version, correlation_id, _) = peer.requests()
    [settled] = exchange.received(response(key, version, correlation_id, HeartbeatResponse()))
    assert settled.request is asked


def test_memory_inside_a_message_is_sent_from_where_it_is() -> None:
    """Records are pieces of their own in `outgoing`, not copied into the frame."""
    exchange, peer = negotiated(v0=(3, 9))
    records = memoryview(b"r" * 1000)
    data = PartitionProduceData(records=[FileRange(records, 0, 400), FileRange(records, 400, 600)])
    topic = TopicProduceData(name="t", partition_data=[data])
    exchange.send(Request(ProduceRequest(acks=-1, topic_data=[topic])))
    sizes = [len(part) for part in exchange.next_parts()]
    assert 400 in sizes
    assert 600 in sizes
    [(_, _, _, message)] = peer.requests()
    assert bytes(message.topic_data[0].partition_data[0].records) == bytes(records)


@given(st.lists(st.integers(1, 40), max_size=30))
def test_outgoing_bytes_leave_in_any_pieces(sizes: list[int]) -> None:
    """However much a socket takes at a time, the bytes are the same and in order."""
    exchange = exchange_of()
    exchange.connected()
    whole = b"".join(exchange.next_parts(100))
    left = b""
    for size in sizes:
        part = b"".join(exchange.next_parts(1))[:size]
        exchange.sent(len(part))
        left += part
    assert left + b"".join(exchange.next_parts(100)) == whole


# Responses


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    st.lists(st.integers(0, 1 << 20), max_size=12),
)
def test_responses_settle_their_requests_in_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    """Small and large ones in one stream, whole, byte by byte at the edges, or cut anywhere."""
    exchange, peer = negotiated(v3=(0, 8))
    asked = [Request(MetadataRequest(topics=[])) for _ in sizes]
    for request in asked:
        exchange.send(request)
    stream = b""
    for (key, version, correlation_id, _), size in zip(peer.requests(), sizes, strict=True):
        topics = [MetadataResponseTopic(name="n" * 50)] * size
        stream += response(key, version, correlation_id, MetadataResponse(topics=topics))
    settled = [each for part in pieces_of(stream, cuts) for each in exchange.received(part)]
    assert [each.request for each in settled] == asked
    assert [len(each.response.topics) for each in settled] == sizes
    assert exchange.open_count == 0
    assert exchange.frames.between_frames


def test_a_response_byte_by_byte_and_with_trailing_data() -> None:
    """Nothing is settled before the last byte; what follows waits for its own end."""
    for trailing in (b"", b"\x00", b"\x00\x00\x00\x09\x00\x00"):
        exchange, peer = negotiated()
        request = Request(HeartbeatRequest(group_id="g"))
        exchange.send(request)
        [(key, version, correlation_id, _)] = peer.requests()
        data = response(key, version, correlation_id, HeartbeatResponse(error_code=27))
        for byte in data[:-1]:
            assert exchange.received(bytes([byte])) == []
        [settled] = exchange.received(data[-1:] + trailing)
        assert (settled.request, settled.response.error_code) == (request, 27)
        assert exchange.frames.filled == len(trailing)


def test_a_response_to_another_request_is_an_error() -> None:
    """Responses come in order: one that answers a later request, or none, ends the connection."""
    exchange, peer = negotiated()
    with pytest.raises(UnexpectedResponse, match="without a request"):
        exchange.received(response(12, 4, 1, HeartbeatResponse()))
    first, second = (Request(HeartbeatRequest(group_id=name)) for name in "ab")
    exchange.send(first)
    exchange.send(second)
    later = list(peer.requests())[1]
    with pytest.raises(UnexpectedResponse, match=f"response {second.correlation_id} where"):
        exchange.received(response(*later[:3], HeartbeatResponse()))
    assert list(exchange.in_flight) == [first, second]


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_frame_may_have_is_an_error(size: int) -> None:
    """Before any memory is taken for it."""
    exchange = exchange_of()
    with pytest.raises(OversizedFrame, match=str(size)):
        exchange.received(struct.pack(">i", size))


def test_a_malformed_response_leaves_the_request_open() -> None:
    """Cut short anywhere, the body is refused and its request is still without an answer."""
    exchange, peer = negotiated(v10=(0, 1))
    request = Request(FindCoordinatorRequest())
    exchange.send(request)
    [(key, version, correlation_id, _)] = peer.requests()
    answer = FindCoordinatorResponse(host="a-host", node_id=3, port=9)
    body = response(key, version, correlation_id, answer)[4:]
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            exchange.received(struct.pack(">i", size) + body[:size])
    assert list(exchange.in_flight) == [request]
    [settled] = exchange.received(struct.pack(">i", len(body)) + body)
    assert settled.response.host == "a-host"


# Frames


FRAME_SIZES = st.lists(
    st.one_of(
        st.integers(0, 100),
        st.sampled_from([BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES - 3, BUFFER_BYTES]),
        st.integers(0, 3 * BUFFER_BYTES),
    ),
    max_size=8,
)


@given(FRAME_SIZES, st.lists(st.integers(0, 1 << 22), max_size=12))
def test_frames_come_out_as_they_went_in(sizes: list[int], cuts: list[int]) -> None:
    """Of all sizes around the buffer's, in any pieces."""
    written = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(each)) + each for each in written)
    frames = FrameReader(FRAME_BYTES_MAX)
    found: list[Frame] = []
    for piece in pieces_of(stream, cuts):
        found += frames.feed(piece)
    assert [bytes(each.data) for each in found] == written
    assert frames.between_frames


@given(st.integers(0, 3 * BUFFER_BYTES), st.integers(0, 1 << 22), st.integers(0, 20))
def test_memory_that_was_received_into_is_adopted(size: int, cut: int, trailing: int) -> None:
    """A large frame goes on in the memory where it began; all else is copied out of it."""
    body = bytes(range(256)) * (size // 256 + 1)
    stream = struct.pack(">i", size) + body[:size] + struct.pack(">i", 50)[:trailing]
    stream += bytes(max(0, trailing - 4))
    memory = memoryview(bytearray(len(stream) + 10))
    filled = min(len(stream), cut % (len(stream) + 1))
    memory[:filled] = stream[:filled]
    frames = FrameReader(FRAME_BYTES_MAX)
    found = frames.adopt(memory, filled)
    if frames.large is not None and filled <= 4 + size and 4 + size > BUFFER_BYTES and filled >= 4:
        assert frames.large.obj is memory.obj
    found += frames.feed(stream[filled:])
    assert [bytes(each.data) for each in found] == [body[:size]]
    assert frames.filled == trailing


def test_large_frames_go_into_memory_that_is_lent() -> None:
    """One that fits into the buffer is copied; a larger one is received where it stays."""
    lent: list[int] = []

    def lend(size: int) -> memoryview:
        lent.append(size)
        return memoryview(bytearray(size))

    frames = FrameReader(FRAME_BYTES_MAX, lend)
    frames.feed(struct.pack(">i", BUFFER_BYTES - 4) + bytes(BUFFER_BYTES - 4))
    assert lent == []
    frames.feed(struct.pack(">i", BUFFER_BYTES) + b"x")
    assert lent == [BUFFER_BYTES]
    assert len(frames.target()) == BUFFER_BYTES - 1
