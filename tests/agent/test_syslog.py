"""Syslog: messages, framing, and the three sources over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from ottla.agent.syslog.framing import Framing, Message
from ottla.agent.syslog.messages import kept_fields, parse, rfc3164_time

from .net_harness import LOCAL, listening

NOW = datetime(2026, 1, 5, 12)
OLD = b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed"
NEW = b"<165>1 2003-10-11T22:14:15.003Z host.example.com app 17 ID47 - An event"
NOTHING = kept_fields(["none"])
LOCAL_ADDRESS = ("host = 127.0.0.1",)
TCP = ("type = syslogtcp", *LOCAL_ADDRESS, "port = 0")
UDP = ("type = syslogudp", *LOCAL_ADDRESS, "port = 0")


@pytest.fixture
def prague(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone with summer time."""
    monkeypatch.setenv("TZ", "Europe/Prague")
    time.tzset()
    rfc3164_time.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    rfc3164_time.cache_clear()


def ms(text: str) -> str:
    return str(int(datetime.fromisoformat(text).timestamp() * 1000))


@pytest.mark.usefixtures("prague")
def test_a_message_of_rfc_3164() -> None:
    """The example of the RFC, in local time; the year is the nearest one."""
    assert parse(OLD, NOTHING, NOW) == (
        b"su: 'su root' failed",
        {
            "Facility": "4",
            "Severity": "2",
            "timestamp": ms("2025-10-11T22:14:15+02:00"),
            "host": "mymachine",
        },
    )
    soon = parse(OLD.replace(b"Oct 11", b"Jan  6"), NOTHING, NOW)[1]
    assert soon["timestamp"] == ms("2026-01-06T22:14:15+01:00")


def test_a_message_of_rfc_5424() -> None:
    """The body is what follows the host; a dash says that nothing is known."""
    assert parse(NEW, NOTHING, NOW) == (
        b"app 17 ID47 - An event",
        {
            "Facility": "20",
            "Severity": "5",
            "timestamp": ms("2003-10-11T22:14:15.003Z"),
            "host": "host.example.com",
        },
    )
    body, headers = parse(b"<0>1 - - app - - - text", NOTHING, NOW)
    assert body == b"app - - - text"
    assert headers == {"Facility": "0", "Severity": "0"}


def test_what_is_no_syslog_is_kept_and_marked() -> None:
    """Flume's header says so; a priority alone is read."""
    invalid = {"Facility": "0", "Severity": "0", "flume.syslog.status": "Invalid"}
    assert parse(b"hello", NOTHING) == (b"hello", invalid)
    assert parse(b"<999>hello", NOTHING) == (b"<999>hello", invalid)
    assert parse(b"<10>bad data", NOTHING) == (b"bad data", {"Facility": "1", "Severity": "2"})
    assert "timestamp" not in parse(OLD.replace(b"Oct 11", b"Feb 31"), NOTHING)[1]


@pytest.mark.parametrize(
    ("names", "body"),
    [
        (["all"], NEW),
        (["true"], NEW),
        (["false"], b"app 17 ID47 - An event"),
        (["priority", "hostname"], b"<165>host.example.com app 17 ID47 - An event"),
        (["version", "timestamp"], b"1 2003-10-11T22:14:15.003Z app 17 ID47 - An event"),
    ],
)
def test_kept_fields(names: list[str], body: bytes) -> None:
    """keepFields: in the order in which they came."""
    assert parse(NEW, kept_fields(names))[0] == body


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_framing_does_not_depend_on_blocks(size: int) -> None:
    """Octet counts and lines, however they arrive; a counted message may have line feeds."""
    many = b"<1>two\nlines"
    counted = b"".join(b"%d %s" % (len(each), each) for each in (OLD, many, NEW))
    for data, messages in (
        (counted, [OLD, many, NEW]),
        (OLD + b"\r\n\n" + NEW + b"\n", [OLD, NEW]),
        (b"123 no count\n", [b"123 no count"]),
    ):
        framing = Framing(2500)
        found = []
        for start in range(0, len(data), size):
            found += framing.feed(data[start : start + size])
        assert found == [Message(each) for each in messages]
        assert framing.end() == []


def test_long_and_unfinished_messages_come_in_pieces() -> None:
    """Nothing is dropped, and memory stays bounded."""
    framing = Framing(10)
    assert framing.feed(b"<1>" + b"x" * 9 + b"\n") == [
        Message(b"<1>" + b"x" * 7, True),
        Message(b"xx"),
    ]
    assert framing.feed(b"y" * 25) == [Message(b"y" * 10, True)] * 2
    assert framing.end() == [Message(b"yyyyy", True)]


def test_a_counted_message_is_not_kept_until_it_is_whole() -> None:
    """One that says it has 99,999,999 octets comes in pieces, as a long line does; before, all of
    it was kept, for each connection, and copied with each block."""
    framing = Framing(1000)
    begun = framing.feed(b"99999999 <1>" + b"x" * 5000)
    assert [len(each.body) for each in begun] == [1000] * 5
    assert framing.end() == [Message(b"xxx", True)]
    framing = Framing(4)
    found = [each for byte in b"12 <1>abcdefghi3 <2>" for each in framing.feed(bytes([byte]))]
    assert found == [
        Message(b"<1>a", True), Message(b"bcde", True), Message(b"fghi"), Message(b"<2>")
    ]  # fmt: skip


def test_tcp() -> None:
    """Both framings on one port, with the client's address as a header."""

    async def run() -> None:
        async with listening(*TCP, "clientIPHeader = ip", "keepFields = all") as running:
            for sent in (OLD + b"\n", b"%d %s" % (len(NEW), NEW)):
                _, writer = await running.connect()
                count = len(running.output.bodies)
                writer.write(sent)
                await running.output.wait_for(count + 1)
                writer.close()
            assert running.output.bodies == [OLD, NEW]
            assert [each["ip"] for each in running.output.headers] == [LOCAL, LOCAL]

    asyncio.run(run())


def test_a_message_that_is_cut_is_marked() -> None:
    """eventSize."""

    async def run() -> None:
        async with listening(*TCP, "eventSize = 20") as running:
            _, writer = await running.connect()
            writer.write(b"<1>" + b"x" * 20 + b"\n")
            assert await running.output.wait_for(2) == [b"x" * 17, b"xxx"]
            assert running.output.headers[0]["flume.syslog.status"] == "Incomplete"
            assert running.output.headers[1]["flume.syslog.status"] == "Invalid"
            writer.close()

    asyncio.run(run())


def test_several_ports() -> None:
    """portHeader says which."""

    async def run() -> None:
        lines = ("type = multiport_syslogtcp", *LOCAL_ADDRESS, "ports = 0 0", "portHeader = port")
        async with listening(*lines) as running:
            ports = running.source.server.bound
            for number, port in enumerate(ports):
                _, writer = await asyncio.open_connection(LOCAL, port)
                writer.write(OLD + b"\n")
                await running.output.wait_for(number + 1)
                writer.close()
            assert [each["port"] for each in running.output.headers] == [str(p) for p in ports]

    asyncio.run(run())


def test_udp() -> None:
    """A datagram is a message, whatever it is."""

    async def run() -> None:
        async with listening(*UDP, "clientHostnameHeader = name") as running:
            running.send_udp(OLD + b"\n", NEW, b"hello")
            bodies = await running.output.wait_for(3)
            assert bodies == [b"su: 'su root' failed", b"app 17 ID47 - An event", b"hello"]
            assert all(each["name"] for each in running.output.headers)

    asyncio.run(run())
