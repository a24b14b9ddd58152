"""One connection: requests in place, answers in order, faults that stay its own."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.seams.disk import RealDisk
from ottla.server.limits import MiB
from ottla.wire.out import Out
from tests.server.fake import Client, MemoryFile, Script, answer, file_answer, frame
from tests.server.harness import ServerHarness, running_server


def run(scenario: Callable[[ServerHarness], Awaitable[object]]) -> None:
    async def inside() -> None:
        async with running_server() as running:
            await scenario(running)

    asyncio.run(inside())


def test_one_request_one_answer() -> None:
    """A request is handled without its size and answered on its connection."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.ask(b"ehello")
        assert await client.answers(1) == [b"hello"]
        assert harness.script.seen == [b"ehello"]

    run(scenario)


def test_requests_may_come_in_any_pieces() -> None:
    """However the bytes of a stream are cut, the same requests are handled and answered."""
    rng = random.Random(11)
    payloads = [b"e" + rng.randbytes(rng.choice([0, 1, 10, 3000, 90_000])) for _ in range(25)]
    stream = b"".join(map(frame, payloads))

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()

        async def send() -> None:
            position = 0
            while position < len(stream):
                step = rng.choice([1, 2, 3, 50, 4096, 70_000, 200_000])
                await client.send(stream[position : position + step])
                position += step
                if rng.random() < 0.5:
                    await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        assert await client.answers(len(payloads)) == [payload[1:] for payload in payloads]
        await sending

    run(scenario)


def test_pipelined_requests_are_answered_in_one_send() -> None:
    """Fifty requests that came together are handled together."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.ask(*(b"e%d" % n for n in range(50)))
        assert await client.answers(50) == [b"%d" % n for n in range(50)]

    run(scenario)


def test_answers_keep_the_order_of_the_requests() -> None:
    """An answer that comes later holds back those behind it, and none before it."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.ask(b"e1", b"p2", b"e3", b"p4", b"n", b"e5")
        assert await client.answers(1) == [b"1"]
        await harness.until(lambda: len(harness.script.seen) == 6)
        harness.script.settle(b"4")
        assert await client.silent()
        harness.script.settle(b"2")
        assert await client.answers(4) == [b"2", b"3", b"4", b"5"]

    run(scenario)


def test_a_pending_answer_may_turn_out_to_be_none() -> None:
    """A pending answer of nothing lets the ones behind it go."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.ask(b"p1", b"e2")
        await harness.until(lambda: len(harness.script.seen) == 2)
        harness.script.pending[b"1"][0].resolve(None)
        assert await client.answers(1) == [b"2"]

    run(scenario)


def test_an_exclusive_request_holds_back_the_next_ones() -> None:
    """What follows an exclusive request is handled only after its effect."""

    async def scenario(harness: ServerHarness) -> None:
        client, other = await harness.client(), await harness.client()
        await client.ask(b"e1", b"x2", b"e3", b"e4")
        assert await client.answers(1) == [b"1"]
        await other.ask(b"eother")
        assert await other.answers(1) == [b"other"]
        assert b"e3" not in harness.script.seen
        harness.script.settle(b"2")
        assert await client.answers(3) == [b"2", b"3", b"4"]

    run(scenario)


def test_a_fault_closes_its_connection_alone_with_one_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Answers to what came before still go out; the other connection does not notice."""

    async def scenario(harness: ServerHarness) -> None:
        client, other = await harness.client(), await harness.client()
        await other.ask(b"p1")
        await client.ask(b"e1", b"bnonsense", b"e2")
        assert await client.answers(1) == [b"1"]
        assert await client.ended()
        await harness.until(lambda: b"p1" in harness.script.seen)
        harness.script.settle(b"1")
        assert await other.answers(1) == [b"1"]
        assert b"e2" not in harness.script.seen

    with caplog.at_level(logging.INFO, "ottla"):
        run(scenario)
    reasons = [record.getMessage() for record in caplog.records]
    assert len(reasons) == 1
    assert "bad request b'nonsense'" in reasons[0]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff\xff\xff\xff", "announced a request of -1 bytes"),
        (b"\x7f\xff\xff\xff", "announced a request of 2147483647 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "perhaps HTTP"),
        (b"\x16\x03\x01\x02\x00", "it speaks TLS"),
        (frame(b"c"), "the server failed on its request"),
    ],
)
def test_what_is_no_request_closes_with_a_reason(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A size that no request has, another protocol, or a fault of ours: one line says which."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.send(sent)
        assert await client.ended()

    with caplog.at_level(logging.INFO, "ottla"):
        run(scenario)
    closed = [r.getMessage() for r in caplog.records if "closed the connection" in r.getMessage()]
    assert len(closed) == 1
    assert reason in closed[0]


def test_a_lost_connection_cancels_what_it_waits_for() -> None:
    """Pending answers of a connection that is gone are cancelled, and the server forgets it."""

    async def scenario(harness: ServerHarness) -> None:
        client = await harness.client()
        await client.ask(b"p1", b"p2")
        await harness.until(lambda: len(harness.script.seen) == 2)
        client.close()
        await harness.until(lambda: not harness.server.connections)
        assert harness.script.cancelled == [b"1", b"2"]

    run(scenario)


def test_a_handler_may_close_the_connection_later() -> None:
    """`peer.disconnect` ends the connection, also from inside the request itself."""

    async def scenario(harness: ServerHarness) -> None:
        def close_now(rest: bytes, peer: object) -> Out | None:
            peer.disconnect("no more")  # type: ignore[attr-defined]
            return answer(b"too late")

        harness.script.rules[ord("d")] = close_now
        client = await harness.client()
        await client.ask(b"d", b"enever")
        assert await client.ended()
        assert harness.script.seen == [b"d"]

    run(scenario)


def test_a_view_kept_by_a_handler_never_changes() -> None:
    """A buffer is not used again while somebody looks at it (KAFKA-19012)."""
    rng = random.Random(5)
    payloads = [b"n" + rng.randbytes(rng.choice([10, 500, 100_000, 300_000])) for _ in range(60)]

    async def scenario(harness: ServerHarness) -> None:
        harness.script.keep_views = True
        client = await harness.client()
        for start in range(0, len(payloads), 6):
            await client.ask(*payloads[start : start + 6])
            await asyncio.sleep(0.001)
        await harness.until(lambda: len(harness.script.views) == len(payloads))
        assert [bytes(view) for view in harness.script.views] == payloads
        harness.script.views.clear()

    run(scenario)


def test_file_ranges_are_sent_between_the_bytes(tmp_path: Path) -> None:
    """An answer with file ranges arrives whole: by sendfile, by pread, small, large and empty."""
    content = os.urandom(5 * MiB)
    (tmp_path / "0.log").write_bytes(content)

    async def scenario(harness: ServerHarness) -> None:
        disk = RealDisk()
        files = {b"r": disk.open(str(tmp_path / "0.log")), b"m": MemoryFile(content)}

        def read(rest: bytes, peer: object) -> Out:
            position, size = map(int, rest[1:].split())
            return file_answer(b"before", files[rest[:1]], position, size, b"after")

        harness.script.rules[ord("f")] = read
        client = await harness.client()
        ranges = [(0, 0), (7, 1), (3, 16_384), (3, 16_385), (100, 2 * MiB), (0, 5 * MiB)]
        asked = [(file, *range_) for file in (b"r", b"m") for range_ in ranges]
        await client.ask(*(b"f%s%d %d" % one for one in asked), b"eend")
        for _, position, size in asked:
            (got,) = await client.answers(1)
            assert got == b"before" + content[position : position + size] + b"after"
        assert await client.answers(1) == [b"end"]

    run(scenario)


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_file_that_ends_too_early_closes_the_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A promise that cannot be kept ends the connection rather than send other bytes."""

    async def scenario(harness: ServerHarness) -> None:
        harness.script.rules[ord("f")] = lambda rest, peer: file_answer(
            b"", MemoryFile(b"x" * (size // 2)), 0, size, b""
        )
        client = await harness.client()
        await client.ask(b"f")
        assert len(await client.exactly(size + 4)) < size + 4

    with caplog.at_level(logging.INFO, "ottla"):
        run(scenario)
    assert len(caplog.records) == 1


def test_one_big_reader_does_not_hold_the_others() -> None:
    """While a client takes a large answer, another is served between the slices."""
    content = bytes(64 * MiB)

    async def scenario(harness: ServerHarness) -> None:
        harness.script.rules[ord("f")] = lambda rest, peer: file_answer(
            b"", MemoryFile(content), 0, len(content), b""
        )
        big, small = await harness.client(), await harness.client()
        await big.ask(b"f")
        reading = asyncio.create_task(big.exactly(len(content) + 4, 30))
        rounds = 0
        while not reading.done():
            await small.ask(b"e")
            assert await small.answers(1) == [b""]
            rounds += 1
        assert len(await reading) == len(content) + 4
        assert rounds > 10

    run(scenario)


def test_the_script_is_its_own(tmp_path: Path) -> None:
    """Two servers in one process share nothing."""

    async def scenario(first: ServerHarness) -> None:
        async with running_server(script=Script()) as second:
            one, two = await first.client(), await Client.connect(second.port)
            await one.ask(b"e1")
            await two.ask(b"e2")
            assert await one.answers(1) + await two.answers(1) == [b"1", b"2"]
            two.close()
        assert first.script.seen == [b"e1"]

    run(scenario)
