"""Producers that are kept in a process."""

from __future__ import annotations

import pytest

from ottla.spark.sink import connections
from ottla.testing import Broker


def test_producers_are_used_again_and_not_more_than_so_many_are_kept(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same properties give the same producer; beyond PRODUCERS_MAX the oldest is closed."""
    monkeypatch.setattr(connections, "_producers", {})
    made = [
        connections.plain_producer(
            {"bootstrap.servers": broker.bootstrap_servers, "client.id": f"c{number}"}
        )
        for number in range(connections.PRODUCERS_MAX + 1)
    ]
    try:
        again = {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": f"c{connections.PRODUCERS_MAX}",
        }
        assert connections.plain_producer(again) is made[-1]
        assert len(connections._producers) == connections.PRODUCERS_MAX
        assert made[0]._closed is not None
        assert made[1]._closed is None
    finally:
        for each in made:
            each.close()
