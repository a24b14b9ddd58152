"""The example with interceptors: a header, a blot, and a count on close."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from ottla.testing import Broker, consume_all

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "interceptors.py"


def test_every_record_has_its_time_and_the_count_is_printed(
    ottla_broker: Broker, ottla_topic: str
) -> None:
    """Three lines become three records with a header; the password of one is gone."""
    began_ms = int(time.time() * 1000)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), ottla_topic,
         "--bootstrap-servers", ottla_broker.bootstrap_servers],
        input="one\nuser=max password=felice\nthree\n",
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "records sent: 3 succeeded, 0 failed\n"
    records = consume_all(ottla_broker, ottla_topic, count=3)
    assert [each.value for each in records] == [b"one", b"user=max password=***", b"three"]
    for each in records:
        ((name, stamp),) = each.headers
        assert name == "sent-at"
        assert began_ms <= int(stamp or 0) <= int(time.time() * 1000)
