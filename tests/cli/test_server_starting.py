"""`ottla server` that waits for a controller: a signal ends it as it ends one that serves."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.metadata_store.shared import LOCK_FILE, ControllerAddress, SharedDirectory
from ottla.seams.disk import RealDisk
from tests.live import free_port
from tests.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_broker_that_waits_for_a_controller(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Exit code 0, no traceback, and its logs are marked clean.

    With SIGTERM no controller was ever elected: another process has the lock. With SIGINT one was,
    and nobody answers at its address any more.
    """
    shared = tmp_path / "metadata"
    shared.mkdir()
    lock = RealDisk().lock(str(shared / LOCK_FILE))
    if number is signal.SIGINT:
        gone = ControllerAddress(2, "127.0.0.1", free_port(), "0" * 32, 1)
        SharedDirectory(RealDisk(), str(shared)).publish(gone)
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ottla", "server", "--data-dir", str(tmp_path / "data")),
                *("--listen", "127.0.0.1:0", "--set", "node.id=1"),
                *("--set", f"ottla.cluster.directory={shared}"),
            ],
            stderr=file,
        )
    try:
        eventually(lambda: (tmp_path / "data" / "meta.properties").exists(), "its logs are loaded")
        process.send_signal(number)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        lock.release()
    said = errors.read_text()
    assert "stopping while the broker waits for the cluster" in said
    assert "Traceback" not in said
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
