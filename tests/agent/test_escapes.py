"""Flume's escapes in names."""

from __future__ import annotations

import time

import pytest

from ottla.agent.escapes import expand

NOW_MS = 1_700_000_000_123  # Tuesday, 14 November 2023, 22:13:20 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("logs-%{host}", "logs-web1"),
        ("logs-%{absent}-x", "logs--x"),
        ("%Y-%m-%d", "2023-11-14"),
        ("%y%n%e %H:%M:%S", "231114 22:13:20"),
        ("%a %A %b %B", "Tue Tuesday Nov November"),
        ("%c", "Tue Nov 14 22:13:20 2023"),
        ("%D %I %l %k %p %j", "11/14/23 10 10 22 PM 318"),
        ("%s %t %z", "1700000000 1700000000123 +0000"),
        ("100%% %q", "100% %q"),
    ],
)
def test_escapes_are_those_of_flume(text: str, expected: str) -> None:
    """`%{header}`, the parts of the time, and what is no escape stays."""
    assert expand(text, {"host": "web1"}, NOW_MS) == expected


def test_the_time_is_that_of_the_event() -> None:
    """The header `timestamp` counts, in milliseconds; one that is no number does not."""
    assert expand("%Y", {"timestamp": "0"}, NOW_MS) == "1970"
    assert expand("%Y", {"timestamp": "soon"}, NOW_MS) == "2023"
