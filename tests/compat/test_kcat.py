"""kcat from Debian's packages, unmodified, on a live broker: metadata, produce, consume, query."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests import needs

WAIT_S = 60


def kcat(bootstrap: str, *arguments: str, text: str = "") -> str:
    result = subprocess.run(
        [needs.kcat(), "-b", bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(bootstrap: str, new_name: Callable[[str], str], codec: str) -> None:
    """Lines go in with keys and come out in order with offsets, in every compression."""
    topic = new_name(f"kcat-{codec}")
    lines = "".join(f"k{i}:value {i}\n" for i in range(100))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "a=b", text=lines)
    out = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %k %s %h\n")
    assert out.splitlines() == [f"{i} k{i} value {i} a=b" for i in range(100)]


def test_metadata_and_offset_query(bootstrap: str, new_name: Callable[[str], str]) -> None:
    """-L lists the topic with its leader, and -Q finds an offset by time."""
    topic = new_name("kcat-query")
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", text="one\ntwo\n")
    listing = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    [described] = [entry for entry in listing["topics"] if entry["topic"] == topic]
    assert described["partitions"][0]["leader"] == listing["brokers"][0]["id"]
    assert f"{topic} [0] offset 2" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1")
    assert f"{topic} [0] offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:1")
