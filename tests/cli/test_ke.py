"""ke.sh: start, status and stop of a console by Kafka-Eagle's file."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import Server, environment_with, free_port


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "conf").mkdir()
    yield tmp_path
    ke(tmp_path, "stop")


def ke(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; from ottla.cli.kafka_scripts.ke import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True, text=True, check=False, timeout=120,
        env=environment_with({"KE_HOME": str(home)}),
    )  # fmt: skip


def write(home: Path, text: str) -> None:
    (home / "conf" / "system-config.properties").write_text(text)


def test_the_notes_way(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """start says the address and the one-time password and answers the database's options with a
    sentence; status and a second start know it; /ke leads to the start page; stop ends it."""
    with Server(tmp_path_factory.mktemp("broker") / "data") as broker:
        # ZooKeeper is not there: brokers are looked for beside it, or where the file says.
        write(
            home,
            f"kafka.eagle.zk.cluster.alias=cluster1\ncluster1.zk.list=localhost:{free_port()}\n"
            f"cluster1.bootstrap.servers={broker.bootstrap}\nkafka.eagle.webui.port=0\n"
            "kafka.eagle.metrics.charts=true\nkafka.eagle.driver=com.mysql.jdbc.Driver\n"
            "kafka.eagle.url=jdbc:mysql://localhost:3306/ke\nkafka.eagle.username=root\n"
            "kafka.eagle.password=123456\n",
        )
        started = ke(home, "start")
        assert started.returncode == 0, started.stderr
        assert "SQLite is built in" in started.stdout
        assert "123456" not in started.stdout
        assert "Log in as admin with" in started.stdout
        [line] = [each for each in started.stdout.splitlines() if "visit" in each]
        address = line.split()[-1]
        assert address.endswith("/ke")
        asked = urllib.request.Request(address, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked) as answer:
            assert answer.url.partition("?")[0].endswith("/login")
        status = ke(home, "status")
        assert (status.returncode, address in status.stdout) == (0, True)
        assert "already" in ke(home, "start").stdout
        assert ke(home, "stop").returncode == 0
    assert ke(home, "status").returncode == 1


def test_what_hinders_a_start_is_said(home: Path) -> None:
    """No file, a file without clusters: one sentence and what to try; nothing runs then."""
    missing = ke(home, "start")
    assert missing.returncode == 1
    assert "there is no" in missing.stderr
    write(home, "kafka.eagle.url=jdbc:mysql://x\n")
    empty = ke(home, "start")
    assert empty.returncode == 1
    assert "names no cluster" in empty.stderr
    assert ke(home, "status").returncode == 1
    assert "USAGE" in ke(home, "begin").stderr
