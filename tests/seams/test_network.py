"""The network seam: real sockets and simulated ones behave alike."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.seams.chance import SeededChance
from ottla.seams.clock import ManualClock
from ottla.seams.disk import RealDisk
from ottla.seams.network import (
    EXPECTED_BYTES,
    FileTooShort,
    RealNetwork,
    RealStream,
    Stream,
    address_text,
    has_ipv6,
)
from ottla.seams.simulated.network import SimulatedNetwork, SimulatedStream


class Echo:
    """Sends back what it gets, with the back-pressure a stream asks for."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.pending = bytearray()
        stream.on_readable(self.readable)

    def readable(self) -> None:
        piece = bytearray(10_000)
        try:
            size = self.stream.recv_into(piece)
        except OSError:
            size = 0
        if size is None:
            return
        if not size:
            self.stream.close()
            return
        self.pending += piece[:size]
        self.stream.pause()
        self.stream.on_writable(self.writable)

    def writable(self) -> None:
        half = len(self.pending) // 2
        sent = self.stream.send([bytes(self.pending[:half]), bytes(self.pending[half:])])
        del self.pending[:sent]
        if not self.pending:
            self.stream.stop_writable()
            self.stream.resume()


class Collector:
    """Sends one payload and collects what comes."""

    def __init__(self, stream: Stream, payload: bytes) -> None:
        self.stream = stream
        self.left = memoryview(payload)
        self.got = bytearray()
        self.ended = False
        stream.on_readable(self.readable)
        if payload:
            stream.on_writable(self.writable)

    def readable(self) -> None:
        piece = bytearray(7_000)
        try:
            size = self.stream.recv_into(piece)
        except OSError:
            size = 0
        if size:
            self.got += piece[:size]
        elif size == 0:
            self.ended = True
            self.stream.close()

    def writable(self) -> None:
        self.left = self.left[self.stream.send([self.left]) :]
        if not self.left:
            self.stream.stop_writable()


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not claim():
            await asyncio.sleep(0.001)


def test_real_streams_carry_bytes_both_ways() -> None:
    """A megabyte goes there and back through back-pressure on both ends."""
    payload = os.urandom(1 << 20)

    async def scenario() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        listener = network.listen("127.0.0.1", 0, Echo)
        collector = Collector(await network.connect("127.0.0.1", listener.port), payload)
        await until(lambda: len(collector.got) == len(payload))
        assert collector.got == payload
        assert collector.stream.peer == f"127.0.0.1:{listener.port}"
        collector.stream.close()
        collector.stream.close()
        listener.close()

    asyncio.run(scenario())


def test_a_stream_that_expects_much_is_not_woken_up_for_little() -> None:
    """Until as much has come, or the peer has ended; and for every byte when it expects no more."""

    async def scenario() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        accepted: list[Stream] = []
        listener = network.listen("127.0.0.1", 0, accepted.append)
        sender = await network.connect("127.0.0.1", listener.port)
        await until(lambda: bool(accepted))
        [receiver] = accepted
        sizes: list[int | None] = []

        def readable() -> None:
            sizes.append(receiver.recv_into(bytearray(4 * EXPECTED_BYTES)))

        receiver.expect(EXPECTED_BYTES)
        receiver.on_readable(readable)
        assert sender.send([bytes(1000)]) == 1000
        await asyncio.sleep(0.05)
        assert not sizes
        left = memoryview(bytes(EXPECTED_BYTES))
        while left:
            left = left[sender.send([left]) :]
            await asyncio.sleep(0)
        await until(lambda: sum(map(int, filter(None, sizes))) >= EXPECTED_BYTES)
        receiver.expect(1)
        del sizes[:]
        assert sender.send([b"x"]) == 1
        await until(lambda: sum(map(int, filter(None, sizes))) > 0)
        receiver.expect(EXPECTED_BYTES)
        sender.close()
        await until(lambda: bool(sizes) and sizes[-1] == 0)
        receiver.close()
        listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_simulated_streams_do_the_same(seed: int) -> None:
    """The same bytes arrive in order, whatever parts each call moves, from one seed."""
    payload = SeededChance(seed).bytes(300_000)
    clock = ManualClock()
    network = SimulatedNetwork(clock, latency_s=0.001, chance=SeededChance(seed))
    network.host("server").listen("", 9092, Echo)
    collector = Collector(network.connect_now("client", "server", 9092), payload)
    for _ in range(5_000):
        if len(collector.got) == len(payload):
            break
        clock.advance(10)
    assert collector.got == payload
    collector.stream.close()
    clock.advance(100)
    assert not network.streams


def test_a_simulated_cut_holds_bytes_back_until_it_heals() -> None:
    """A cut is not signalled; what was sent arrives afterwards, and so does the end."""
    clock = ManualClock()
    network = SimulatedNetwork(clock, latency_s=0.001)
    streams: list[Stream] = []
    network.host("b").listen("", 1, streams.append)
    near = network.connect_now("a", "b", 1)
    clock.advance(10)
    far = Collector(streams[0], b"")
    network.cut("a", "b")
    assert near.send([b"hel", b"lo"]) == 5
    near.close()
    clock.advance(1000)
    assert far.got == b""
    with pytest.raises(TimeoutError):
        network.connect_now("a", "b", 1)
    network.heal("a", "b")
    clock.advance(10)
    assert far.got == b"hello"
    assert far.ended


def test_a_simulated_crash_breaks_connections_and_closes_listeners() -> None:
    """The peer of a machine that is gone reads an error, and cannot come back."""
    clock = ManualClock()
    network = SimulatedNetwork(clock)
    network.host("b").listen("", 1, lambda stream: None)
    near = Collector(network.connect_now("a", "b", 1), b"")
    network.crash("b")
    clock.advance(10)
    assert near.ended
    with pytest.raises(ConnectionRefusedError):
        network.connect_now("a", "b", 1)


def test_a_simulated_pipe_has_a_limit() -> None:
    """A writer whose reader does not read finds the buffer full, and is called when it is not."""
    clock = ManualClock()
    network = SimulatedNetwork(clock, buffer_bytes=100)
    streams: list[Stream] = []
    network.host("b").listen("", 1, streams.append)
    near = network.connect_now("a", "b", 1)
    clock.advance(1)
    assert near.send([bytes(150)]) == 100
    assert near.send([bytes(1)]) == 0
    called: list[int] = []
    near.on_writable(lambda: (called.append(1), near.stop_writable()))
    clock.advance(1)
    assert not called
    assert streams[0].recv_into(bytearray(60)) == 60
    clock.advance(1)
    assert called == [1]


def test_files_are_sent_by_sendfile_and_by_reading(tmp_path: Path) -> None:
    """A range of a file arrives the same with a descriptor, without one, and without sendfile."""
    content = os.urandom(200_000)
    (tmp_path / "f").write_bytes(content)

    class Without:
        def fileno(self) -> int | None:
            return None

        def pread(self, size: int, position: int) -> bytes:
            return content[position : position + size]

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        file = RealDisk().open(str(tmp_path / "f"))
        for source, sendfile in ((file, True), (Without(), True), (file, False)):
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            stream = RealStream(loop, ours)
            stream._sendfile = sendfile
            got = bytearray()
            position = 1000
            while position < len(content):
                sent = stream.send_file(source, position, len(content) - position)
                position += sent
                if sent:
                    got += await loop.sock_recv(theirs, 1 << 20)
            while len(got) < len(content) - 1000:
                got += await loop.sock_recv(theirs, 1 << 20)
            assert got == content[1000:]
            with pytest.raises(FileTooShort):
                stream.send_file(source, len(content), 1)
            stream.close()
            theirs.close()

    asyncio.run(scenario())


def test_a_listener_may_be_paused() -> None:
    """Newcomers wait in the kernel's queue until it goes on."""

    async def scenario() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        streams: list[Stream] = []
        listener = network.listen("127.0.0.1", 0, streams.append)
        listener.pause()
        near = await network.connect("127.0.0.1", listener.port)
        await asyncio.sleep(0.02)
        assert not streams
        listener.resume()
        await until(lambda: len(streams) == 1)
        near.close()
        streams[0].close()
        listener.close()

    asyncio.run(scenario())


def test_a_port_in_use_is_an_error_on_either_network() -> None:
    """The second listener on a port raises EADDRINUSE."""

    async def scenario() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        first = network.listen("127.0.0.1", 0, lambda stream: None)
        with pytest.raises(OSError) as caught:
            network.listen("127.0.0.1", first.port, lambda stream: None)
        assert caught.value.errno == errno.EADDRINUSE
        first.close()

    asyncio.run(scenario())
    simulated = SimulatedNetwork(ManualClock()).host("a")
    simulated.listen("", 1, lambda stream: None)
    with pytest.raises(OSError) as caught:
        simulated.listen("", 1, lambda stream: None)
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6_and_every_address() -> None:
    """A listener on ::1 takes IPv6; one on every address takes both kinds."""

    async def scenario() -> None:
        network = RealNetwork(asyncio.get_running_loop())
        for host, tried in (("::1", ["::1"]), ("", ["127.0.0.1", "::1"]), ("localhost", ["::1"])):
            streams: list[Stream] = []
            listener = network.listen(host, 0, streams.append)
            for target in tried:
                try:
                    near = await network.connect(target, listener.port)
                except OSError:
                    assert host == "localhost"  # which is IPv4 alone on some machines
                    continue
                await until(lambda: bool(streams))  # noqa: B023
                far = streams.pop()
                assert far.peer_host == target
                near.close()
                far.close()
            listener.close()

    asyncio.run(scenario())


def test_addresses_read_as_in_a_log() -> None:
    """IPv6 in brackets, IPv4 that came through an IPv6 socket as IPv4."""
    assert address_text(("127.0.0.1", 5)) == ("127.0.0.1", "127.0.0.1:5")
    assert address_text(("::1", 5, 0, 0)) == ("::1", "[::1]:5")
    assert address_text(("::ffff:10.0.0.1", 5, 0, 0)) == ("10.0.0.1", "10.0.0.1:5")


def test_out_of_descriptors_pauses_accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without descriptors waits before it accepts again instead of spinning."""

    class NoDescriptors:
        def __init__(self, real: socket.socket) -> None:
            self.real = real
            self.calls = 0

        def accept(self) -> object:
            self.calls += 1
            raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        monkeypatch.setattr("ottla.seams.network.ACCEPT_RETRY_S", 0.05)
        network = RealNetwork(asyncio.get_running_loop())
        streams: list[Stream] = []
        listener = network.listen("127.0.0.1", 0, streams.append)
        broken = NoDescriptors(listener._sockets[0])  # type: ignore[attr-defined]
        listener._accept(broken)  # type: ignore[attr-defined]
        assert broken.calls == 1
        near = await network.connect("127.0.0.1", listener.port)
        await asyncio.sleep(0.01)
        assert not streams
        await until(lambda: len(streams) == 1)
        near.close()
        streams[0].close()
        listener.close()

    asyncio.run(scenario())


def test_the_simulated_stream_is_a_stream() -> None:
    """Both kinds fit the protocol."""
    stream: Stream = SimulatedStream(SimulatedNetwork(ManualClock()), "a", "b", 1)
    assert stream.peer == "b:1"
