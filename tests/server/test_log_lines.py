"""Lines about connections: who makes the server write fills no disk, and nothing is passed over
without being counted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.server.limits import Limits
from ottla.server.log_lines import (
    REMEMBERED_MAX,
    SAME,
    SOURCE,
    SOURCES_COUNTED_MAX,
    WHOLE,
    LogLines,
)
from tests.server.harness import running_server


def test_the_same_again_and_again() -> None:
    """Some lines at once, then one a second; other sentences are written all the same."""
    lines = LogLines(0.0)
    written = [lines.admits("10.0.0.1", "a wrong password", 0.0) for _ in range(1_000)]
    assert sum(written) == SAME.at_once
    assert all(written[: int(SAME.at_once)])
    assert lines.admits("10.0.0.1", "no TLS", 0.0)
    assert lines.admits("10.0.0.2", "a wrong password", 0.0)
    assert not lines.admits("10.0.0.1", "a wrong password", 0.5)
    assert lines.admits("10.0.0.1", "a wrong password", 1.5)
    assert not lines.admits("10.0.0.1", "a wrong password", 1.5)


def test_one_address_that_always_says_something_else() -> None:
    """It gets the lines of an address, and others theirs."""
    lines = LogLines(0.0)
    written = sum(lines.admits("10.0.0.1", f"a frame of {n}", 0.0) for n in range(10_000))
    assert written == SOURCE.at_once
    assert lines.admits("10.0.0.2", "a wrong password", 0.0)
    later = sum(lines.admits("10.0.0.1", f"again {n}", 10.0) for n in range(10_000))
    assert later == 10 * SOURCE.per_second


def test_very_many_addresses() -> None:
    """All together write no more than what is for all, in bounded memory."""
    lines = LogLines(0.0)
    written = sum(lines.admits(f"2001:db8::{n:x}", "no TLS", 0.0) for n in range(50_000))
    assert written == WHOLE.at_once
    hour = [lines.admits(f"2001:db8::{n:x}", "no TLS", n / 10) for n in range(36_000)]
    assert sum(hour) <= 3_600 * WHOLE.per_second
    assert len(lines._buckets) <= REMEMBERED_MAX
    assert len(lines._left_out_of) <= SOURCES_COUNTED_MAX


def test_what_is_left_out_is_counted() -> None:
    """How many lines in all, and the address that had most of them; once."""
    lines = LogLines(0.0)
    assert lines.left_out(1.0) is None
    for _ in range(100):
        lines.admits("10.0.0.1", "no TLS", 2.0)
    for _ in range(10):
        lines.admits("10.0.0.2", "no TLS", 2.0)
    found = lines.left_out(5.0)
    assert found is not None
    assert found.lines == 110 - 2 * SAME.at_once
    assert (found.source, found.of_source, found.seconds) == ("10.0.0.1", 100 - SAME.at_once, 4.0)
    assert lines.left_out(6.0) is None


def test_a_server_under_attack(caplog: pytest.LogCaptureFixture) -> None:
    """Of hundreds of connections that send nonsense few have a line, and the others are counted in
    one; somebody else's mistake is still told."""

    async def scenario() -> None:
        async with running_server(Limits(connections_per_ip_max=3)) as harness:
            for _ in range(300):
                client = await harness.client()
                await client.ask(b"bnonsense")
                assert await client.ended()
                client.close()
            client = await harness.client()
            await client.ask(b"bsomething else")
            assert await client.ended()

    with caplog.at_level(logging.INFO, "ottla"):
        asyncio.run(scenario())
    said = [each.getMessage() for each in caplog.records]
    nonsense = [each for each in said if "b'nonsense'" in each]
    left_out = [each for each in said if "more lines about connections were left out" in each]
    assert SAME.at_once <= len(nonsense) < 100
    assert any("b'something else'" in each for each in said)
    assert sum(int(each.split()[0]) for each in left_out) == 300 - len(nonsense)
    assert left_out[-1].endswith("about 127.0.0.1")
