"""The example that keeps offsets with its results counts right however often it is killed."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from ottla import Producer
from ottla.testing import broker
from tests.client.reading import make_topic

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "offsets_in_sqlite.py"
WORDS = ["kafka", "ottla", "felice", "milena", "max"]


def start(bootstrap: str, database: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), "words", str(database), "--bootstrap-servers", bootstrap,
         "--session-timeout-ms", "400", *more],
        stderr=subprocess.PIPE,
    )  # fmt: skip


def test_killed_and_started_again_it_counts_each_word_once(tmp_path: Path) -> None:
    """Two of them share four partitions; both are killed again and again while words are written;
    in the end the counts are those of the words, and the offsets those of the log."""
    chance = random.Random(5)
    database = tmp_path / "counts.db"
    expected: Counter[str] = Counter()
    with broker(group_min_session_timeout_ms=100) as server:
        bootstrap = server.bootstrap_servers
        make_topic(bootstrap, "words", partitions=4)
        with Producer(bootstrap_servers=bootstrap, value_serializer="str") as producer:
            running = [start(bootstrap, database), start(bootstrap, database)]
            for round_number in range(5):
                for _ in range(2000):
                    words = chance.choices(WORDS, k=3)
                    expected.update(words)
                    producer.send("words", " ".join(words), partition=chance.randrange(4))
                producer.flush()
                time.sleep(0.3)
                victim = running[round_number % 2]
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                running[round_number % 2] = start(bootstrap, database)
            for process in running:
                process.kill()
                process.wait()
        last = start(bootstrap, database, "--stop-after-idle-ms", "400")
        try:
            _, problems = last.communicate(timeout=60)
        finally:
            last.kill()
        assert last.returncode == 0, problems.decode()
    found = sqlite3.connect(database)
    assert dict(found.execute("SELECT word, count FROM counts")) == dict(expected)
    assert found.execute("SELECT SUM(next_offset) FROM offsets").fetchone() == (10_000,)
