"""Requests to start a broker: none is lost between the end of a process and its reaping."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.supervisor.plan import ClusterPlan, planned_brokers, start_request
from ottla.supervisor.processes import identify
from ottla.supervisor.supervisor import Supervisor
from tests.waiting import eventually


def test_a_request_is_taken_though_the_ended_process_is_not_reaped(tmp_path: Path) -> None:
    """A killed process has ended for whoever asks, while its parent must wait for its threads.

    A request for a broker that runs is dropped.
    """
    plan = ClusterPlan(tmp_path, planned_brokers(2, "127.0.0.1", 9092), {})
    supervisor = Supervisor(
        plan, session_timeout_s=9.0, report=lambda line: None, on_ready=lambda servers: None
    )
    with (
        subprocess.Popen([sys.executable, "-c", "pass"]) as ended,
        subprocess.Popen(["sleep", "600"]) as runs,
    ):
        try:
            for broker, process in zip(supervisor._brokers, (ended, runs), strict=True):
                broker._process, broker._id = process, identify(process.pid)
                start_request(tmp_path, broker.node_id).touch()
            eventually(lambda: identify(ended.pid) is None)
            assert [broker.running for broker in supervisor._brokers] == [True, True]
            assert supervisor._take_requests() == [1]
            assert not list(tmp_path.glob("*.start"))
        finally:
            runs.kill()
