"""Large answers, received while the loop waits: whole or in pieces, between others, cut off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import errors
from ottla.client.network import bulk_receive
from ottla.client.network.cluster_client import Client
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.wire.frames import BUFFER_BYTES
from ottla.wire.header import RequestHeader
from tests.client.fake import FakeBroker
from tests.client.test_core import client_of

NAME_BYTES = 100
# Answers around all limits: small, large, larger than the one before, just a little larger.
SIZES = [3, 900, 950, 5000, 5000, 1, 0, 600, 680, 655, 656, 12_000, 12_001, 2, 900, 900]


class PiecewiseBroker(FakeBroker):
    """Answers Metadata with as many topics as it is asked for, and sends as the test says."""

    def __init__(self) -> None:
        super().__init__({3: self.topics})
        self.sending: Callable[[socket.socket, bytes], None] = lambda peer, data: peer.sendall(data)

    def send(self, peer: socket.socket, answer: bytes) -> None:
        self.sending(peer, answer)

    def topics(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        asked = request.topics or []
        count = int(asked[0].name) if asked else 0
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)],
            controller_id=1,
            topics=[
                MetadataResponseTopic(name=str(n).rjust(NAME_BYTES, "-")) for n in range(count)
            ],
        )


def ask(client: Client, count: int) -> None:
    """One answer with so many names, which must all be right."""
    answer = client.call(1, MetadataRequest(topics=[MetadataRequestTopic(name=str(count))]))
    assert [int(topic.name.strip("-")) for topic in answer.topics] == list(range(count))


def in_pieces(peer: socket.socket, data: bytes) -> None:
    """A byte, then three, then pieces that end nowhere in particular, with pauses."""
    place = 0
    for size in 1, 3, 10, BUFFER_BYTES - 7, 1, 50_000, len(data):
        peer.sendall(data[place : place + size])
        place += size
        if place >= len(data):
            return
        time.sleep(0.002)


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the compiled part, and without."""
    if request.param == "plain":
        monkeypatch.setattr(bulk_receive, "receive", None)
    elif bulk_receive.receive is None:
        pytest.skip("not compiled here; try: make compile")
    return str(request.param)


@pytest.mark.parametrize("pieces", [False, True])
def test_answers_of_all_sizes_are_what_was_sent(form: str, pieces: bool) -> None:
    """Small after large, large after small, larger than expected: every name is right."""
    with PiecewiseBroker() as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        if pieces:
            broker.sending = in_pieces
        for size in SIZES:
            ask(client, size)
        client.close()


def test_the_loop_does_its_other_work_while_a_large_answer_comes(form: str) -> None:
    """A call, a timer and another connection have their turn before the answer is whole."""
    go_on, half = threading.Event(), threading.Event()

    def send(peer: socket.socket, data: bytes) -> None:
        if len(data) < BUFFER_BYTES:
            peer.sendall(data)
            return
        peer.sendall(data[:-5])
        half.set()
        go_on.wait(60)
        peer.sendall(data[-5:])

    with PiecewiseBroker() as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        ask(client, 5000)
        broker.sending = send
        asker = threading.Thread(target=ask, args=(client, 5000))
        asker.start()
        assert half.wait(60)
        called, timed = threading.Event(), threading.Event()
        client.call_soon(called.set)
        client.call_later(0.01, timed.set)
        assert called.wait(60)
        assert timed.wait(60)
        other = client.submit(1, MetadataRequest(topics=[]), channel="other")
        assert client.wait(other, 5000).controller_id == 1
        assert asker.is_alive()
        go_on.set()
        asker.join(60)
        assert not asker.is_alive()
        client.close()


def test_the_compiled_part_is_used_after_a_large_answer() -> None:
    """A loop has a receiver while a second large answer is awaited, and none after a small one."""
    if bulk_receive.receive is None:
        pytest.skip("not compiled here; try: make compile")
    with PiecewiseBroker() as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        seen: list[bool] = []

        def look(peer: socket.socket, data: bytes) -> None:
            seen.append(client.loop.receiver is not None)
            peer.sendall(data)

        ask(client, 1)
        broker.sending = look
        for size in 1, 5000, 5000, 1, 1:
            ask(client, size)
        assert seen == [False, False, True, True, False]
        client.close()


@pytest.mark.parametrize("sent", [0, 2, 4, 1000, BUFFER_BYTES + 10])
def test_a_connection_that_ends_inside_an_answer_fails_it_and_is_made_anew(
    form: str, sent: int
) -> None:
    """Wherever it is cut, the request fails and the next one is answered whole."""

    def cut(peer: socket.socket, data: bytes) -> None:
        peer.sendall(data[:sent])
        time.sleep(0.005)
        broker.sending = lambda peer, data: peer.sendall(data)
        peer.shutdown(socket.SHUT_RDWR)

    with PiecewiseBroker() as broker:
        client = client_of(broker, reconnect_backoff_ms=1)
        client.bootstrap(5000)
        ask(client, 5000)
        broker.sending = cut
        with pytest.raises(errors.KafkaConnectionError):
            ask(client, 5000)
        ask(client, 5000)
        client.close()


@pytest.mark.parametrize(
    "nonsense", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x04none"]
)
def test_nonsense_instead_of_a_large_answer_ends_the_connection(form: str, nonsense: bytes) -> None:
    """A size that cannot be, or an answer to nothing: an error that names the peer."""
    with PiecewiseBroker() as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        ask(client, 5000)
        broker.sending = lambda peer, data: peer.sendall(nonsense)
        with pytest.raises(errors.KafkaError, match=r"127\.0\.0\.1"):
            ask(client, 5000)
        client.close()
