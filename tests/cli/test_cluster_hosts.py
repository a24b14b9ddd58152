"""Brokers on any hosts, as `ottla cluster status` and `why` see them from one."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from ottla.cli import cluster_hosts
from ottla.cli.cluster_hosts import registered_brokers
from ottla.client.admin import Admin
from ottla.client.errors import KafkaTimeoutError


class FakeAdmin:
    """A cluster in which broker 2 takes connections and answers nothing."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports

    def describe_cluster(self, include_fenced_brokers: bool) -> dict[str, Any]:
        assert include_fenced_brokers
        brokers = [
            {"broker_id": each, "host": "127.0.0.1", "port": port, "is_fenced": each in (3, 4)}
            for each, port in reversed(self._ports.items())
        ]
        return {"brokers": brokers}

    def api_versions(self, broker_id: int) -> dict[int, tuple[int, int]]:
        assert broker_id in (1, 2), "Metadata does not name fenced brokers"
        if broker_id == 2:
            raise KafkaTimeoutError("no answer")
        return {}


def test_each_state_of_a_broker_has_its_name() -> None:
    """One that answers, one that only takes connections, one that is fenced, one that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        port = listening.getsockname()[1]
        client = FakeAdmin({1: port, 2: port, 3: port, 4: closed})
        found = registered_brokers(cast(Admin, client))
    assert [(each.node_id, each.state, each.fenced, each.answers) for each in found] == [
        (1, "running", False, True),
        (2, "unreachable", False, False),
        (3, "running", True, False),
        (4, "down", True, False),
    ]
    assert found[0].address == f"127.0.0.1:{port}"


def test_who_cannot_be_dialled_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a refused connection says that nobody is there."""

    def unreachable(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert cluster_hosts.dialled("node03", 9092) == "unreachable"
