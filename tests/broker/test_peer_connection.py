"""A connection to another broker: how much it receives at a time, and into which memory."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.network_peers import (
    ENDED_IN_A_ROW,
    READ_BYTES_PER_TURN,
    REFUSED_AGAIN_S,
    Connections,
    PeerConnection,
    PeerRequest,
)
from ottla.seams.clock import ManualClock
from ottla.seams.network import Data, Stream
from ottla.tls.failure import TlsFailure
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.errors import ErrorCode
from ottla.wire.out import Out
from ottla.wire.schema import writer

FETCH, VERSION = 1, 17
SEGMENT_BYTES = 65_000  # in one piece from the network


class FakeStream:
    """What was sent to it, and bytes to receive; counts the turns of the event loop."""

    peer = peer_host = ""

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.sent = bytearray()
        self.readable: Any = None

    def recv_into(self, view: Data) -> int | None:
        size = min(len(view), SEGMENT_BYTES, len(self.incoming))
        if not size:
            return None
        view[:size] = self.incoming[:size]  # type: ignore[index]
        del self.incoming[:size]
        return size

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        self.sent += b"".join(buffers)
        return sum(map(len, buffers))

    def on_readable(self, callback: Any) -> None:
        self.readable = callback

    def stop_writable(self) -> None: ...

    def close(self) -> None: ...


class FakeNetwork:
    """One stream, connected at once."""

    def __init__(self) -> None:
        self.stream = FakeStream()

    async def connect(self, host: str, port: int) -> FakeStream:
        return self.stream

    def turns(self) -> int:
        """How often the reader is called until it has received all that is there."""
        count = 0
        while self.stream.incoming:
            self.stream.readable()
            count += 1
        return count


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def fetched(correlation_id: int, size: int) -> bytes:
    """The answer to a fetch, with so many bytes of records."""
    data = PartitionData(partition_index=0, high_watermark=0, records=bytes(size))
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[data])]
    )
    body = bytes(writer(FetchResponse, VERSION)(response, Out()))
    return framed(correlation_id, b"\0" + body)


def versions(correlation_id: int) -> bytes:
    response = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=FETCH, min_version=4, max_version=VERSION)]
    )
    return framed(correlation_id, bytes(writer(ApiVersionsResponse, 4)(response, Out())))


def correlation_ids(sent: bytes) -> list[int]:
    """Of the requests that were sent."""
    found, at = [], 0
    while at < len(sent):
        size, _, _, correlation_id = struct.unpack_from(">ihhi", sent, at)
        found.append(correlation_id)
        at += 4 + size
    return found


def test_a_large_answer_is_one_turn_and_its_memory_serves_the_next() -> None:
    """A megabyte of records wakes the follower once; a small answer gives the memory back."""

    async def run() -> None:
        network = FakeNetwork()
        connection = PeerConnection(network, ("host", 1), "broker-1", lambda closed: None)  # type: ignore[arg-type]
        memories: list[Any] = []

        def answered(response: FetchResponse) -> None:
            records: Any = response.responses[0].partitions[0].records
            memories.append(records.obj)

        async def answer(size: int) -> int:
            connection.send(PeerRequest(FetchRequest(), answered))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not memories:
                network.stream.incoming += versions(correlation_ids(network.stream.sent)[0])
                network.turns()
            network.stream.incoming += fetched(correlation_ids(network.stream.sent)[-1], size)
            return network.turns()

        assert [await answer(1024 * 1024) for _ in range(3)] == [1, 1, 1]
        assert memories[0] is memories[1] is memories[2]
        assert await answer(3 * READ_BYTES_PER_TURN - 1000) == 3
        assert connection._memory._memory
        assert await answer(100) == 1
        assert not connection._memory._memory
        connection.close("done")

    asyncio.run(run())


class Refusing:
    """Connections that fail for these reasons, one after the other."""

    def __init__(self, *reasons: OSError) -> None:
        self.reasons = list(reasons)

    async def connect(self, host: str, port: int) -> Stream:
        raise self.reasons.pop(0)


def test_a_broker_that_refuses_this_one_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A certificate or a login that is not taken is in the log of who tried, once a minute; a
    broker that is just not there, or stops, is not."""
    clock = ManualClock()
    expired = TlsFailure("its certificate is not accepted: certificate has expired")
    network = Refusing(
        ConnectionRefusedError(111, "Connection refused"), expired, expired,
        TlsFailure("it ended the connection during the handshake", ended=True), expired,
        TlsFailure("it does not speak TLS; its security protocol may be PLAINTEXT"),
        *[TlsFailure("it ended the handshake", ended=True)] * ENDED_IN_A_ROW,
    )  # fmt: skip

    async def scenario() -> None:
        connections = Connections(network, clock, 1)  # type: ignore[arg-type]
        for seconds in (0, 0, 1, 1, REFUSED_AGAIN_S, 1, *[1] * ENDED_IN_A_ROW):
            clock.advance(seconds * 1000)
            answered = asyncio.get_running_loop().create_future()
            request = FetchRequest()
            connections.send(2, ("broker2", 9092), request, answered.set_result, 10)
            assert await answered == ErrorCode.BROKER_NOT_AVAILABLE
        connections.close()

    with caplog.at_level(logging.INFO, "ottla"):
        asyncio.run(scenario())
    said = [each.getMessage() for each in caplog.records]
    start = "the broker at broker2:9092 cannot be asked: "
    assert all(each.startswith(start) for each in said)
    assert [each.removeprefix(start).split(":")[0].split(";")[0] for each in said] == [
        "its certificate is not accepted",
        "its certificate is not accepted",
        "it does not speak TLS",
        "it ended the handshake",
    ]
