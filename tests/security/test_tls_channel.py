"""TLS over a line of little space: nothing is lost, and what counts as sent has left."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.tls.channel import TlsChannel
from ottla.tls.contexts import client_context, server_context
from ottla.tls.failure import TlsFailure
from ottla.tls.options import from_properties

from .certificates import Authority, authority, server_identity


class Pipe:
    """One direction, with space for so many bytes."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.data = bytearray()
        self.ended = False


class PipeLine:
    """One end of two pipes."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.incoming, self.outgoing = incoming, outgoing

    def recv_into(self, view: bytes | bytearray | memoryview) -> int | None:
        data = self.incoming.data
        if not data:
            return 0 if self.incoming.ended else None
        size = min(len(view), len(data))
        memoryview(view)[:size] = data[:size]
        del data[:size]
        return size

    def send(self, buffers: object) -> int:
        sent = 0
        for buffer in buffers:  # type: ignore[attr-defined]
            free = self.outgoing.space - len(self.outgoing.data)
            self.outgoing.data += memoryview(buffer)[:free]
            sent += min(free, len(buffer))
        return sent


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    with TemporaryDirectory() as directory:
        keys = server_identity().write_pem(Path(directory) / "server.pem")
        server = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
        client = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority().pem}
        return server_context(from_properties(server)), client_context(from_properties(client))


def pair(
    space: int, client: ssl.SSLContext | None = None, hostname: str = "localhost"
) -> tuple[TlsChannel, TlsChannel, Pipe, Pipe]:
    """A server's end, a client's end, and the pipes to the server and to the client."""
    to_server, to_client = Pipe(space), Pipe(space)
    of_server, of_client = contexts()
    buffer = memoryview(bytearray(1 << 14))
    server = TlsChannel(PipeLine(to_server, to_client), of_server, buffer, server_side=True)
    other = TlsChannel(
        PipeLine(to_client, to_server),
        client or of_client,
        buffer,
        server_side=False,
        server_hostname=hostname,
    )
    return server, other, to_server, to_client


def shake_hands(server: TlsChannel, client: TlsChannel) -> None:
    for _ in range(1000):
        for channel in (client, server):
            channel.flush() if channel.established else channel.handshake()
        if server.established and client.established:
            return
    raise AssertionError("no end of the handshake")


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 90_000), min_size=1, max_size=6),
    space=st.integers(300, 70_000),
    size=st.integers(1, 50_000),
)
def test_what_is_sent_arrives(pieces: list[int], space: int, size: int) -> None:
    """Pieces of any size through a line of any space come in their order, whatever the reader's
    buffer; and when all count as sent, all can be read without another step of the sender.
    """
    server, client, _, _ = pair(space)
    shake_hands(server, client)
    whole = b"".join(bytes([number + 1]) * length for number, length in enumerate(pieces))
    sent, received = 0, bytearray()
    view = bytearray(size)
    while len(received) < len(whole):
        offered = [memoryview(whole)[sent : sent + 700], memoryview(whole)[sent + 700 :]]
        sent += server.send([part for part in offered if len(part)]) if sent < len(whole) else 0
        all_sent = sent == len(whole)
        if not all_sent:
            server.flush()
        while (got := client.recv_into(view)) is not None:
            assert got > 0
            received += view[:got]
        assert not all_sent or len(received) == len(whole)
    assert bytes(received) == whole


def test_an_end_is_not_silence() -> None:
    """Nothing there is None; an end that the other side announced is 0, behind all its bytes."""
    server, client, _, _ = pair(100_000)
    shake_hands(server, client)
    view = bytearray(10)
    assert client.recv_into(view) is None
    assert server.send([b"last"]) == 4
    server.end()
    assert client.recv_into(view) == 4
    assert client.recv_into(view) == 0


@pytest.mark.parametrize("hostname", ["localhost", "127.0.0.1", "elsewhere"])
def test_the_name_is_checked(hostname: str) -> None:
    """A client goes on only with a server whose certificate has the name that it connected to."""
    server, client, _, _ = pair(100_000, hostname=hostname)
    if hostname != "elsewhere":
        shake_hands(server, client)
        return
    with pytest.raises(TlsFailure, match="Hostname mismatch"):
        shake_hands(server, client)
    with pytest.raises(TlsFailure):
        shake_hands(server, client)  # the client's alert ends the server's side, too


def test_a_foreign_authority_is_refused() -> None:
    """A client that trusts another authority ends the handshake, and both sides know why."""
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Authority("b").pem}
    server, client, _, _ = pair(100_000, client_context(from_properties(trusted)))
    with pytest.raises(TlsFailure, match="its certificate is not accepted"):
        shake_hands(server, client)
    with pytest.raises(TlsFailure, match="does not trust the certificate"):
        server.handshake()


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(min_size=1, max_size=600))
def test_noise_ends_a_handshake(noise: bytes) -> None:
    """Whatever bytes come first, the server's end waits for more or fails with a sentence."""
    server, _, to_server, _ = pair(100_000)
    to_server.data += noise
    to_server.ended = True
    with pytest.raises(TlsFailure):
        steps(server)


def steps(server: TlsChannel) -> None:
    for _ in range(3):
        assert not server.handshake()
