"""How fast connections may come, and how many one listener may have."""

from __future__ import annotations

import pytest

from ottla.security.quotas.client_quotas import AddressRates
from ottla.server import server as server_module
from ottla.server.limits import Limits, ListenerLimits
from tests.server.test_limits import Quiet


def test_connections_per_second() -> None:
    """At max.connection.creation.rate newcomers wait, and nobody is refused.

    As in Kafka all windows together may have as many as the rate allows: 20 of these at once.
    """
    quiet = Quiet(Limits(connections_per_second_max=2))
    streams = [quiet.connect() for _ in range(40)]
    began = len(quiet.server.connections)
    assert 20 < began < 24
    for second in range(1, 9):
        quiet.clock.advance(1000)
        assert len(quiet.server.connections) <= began + 2 * second + 1
    quiet.clock.advance(20_000)
    assert len(quiet.server.connections) == 40
    assert all(quiet.is_open(stream) for stream in streams)
    quiet.server.close()


def test_connections_per_second_of_one_listener() -> None:
    """Its limit is nobody else's; what comes to the brokers' own is not held up by others."""
    limits = Limits(
        connections_per_second_max=3, listeners={"A": ListenerLimits(connections_per_second_max=1)}
    )
    quiet = Quiet(limits, "A", "B", "INTERNAL", inter_broker="INTERNAL")
    for _ in range(15):
        quiet.connect(0)
    assert 10 < quiet.server.accepted["A"] < 13
    for _ in range(30):
        quiet.connect(1)
        quiet.connect(2)
    assert 18 < quiet.server.accepted["B"] < 23
    assert quiet.server.accepted["INTERNAL"] == 30
    quiet.server.close()


def test_connections_of_one_listener() -> None:
    """At listener.name.X.max.connections newcomers wait until one of it closes."""
    limits = Limits(listeners={"A": ListenerLimits(connections_max=2)})
    quiet = Quiet(limits, "A", "B")
    first, *others = [quiet.connect(0) for _ in range(3)]
    assert len(quiet.server.connections) == 2
    others.append(quiet.connect(1))
    assert len(quiet.server.connections) == 3
    first.close()
    quiet.clock.advance(1)
    assert len(quiet.server.connections) == 3
    assert all(quiet.is_open(stream) for stream in others)
    another = quiet.connect(0)
    assert quiet.server.accepted["A"] == 3
    quiet.server.change_limits(Limits())
    quiet.clock.advance(1)
    assert quiet.server.accepted["A"] == 4
    assert quiet.is_open(another)
    quiet.server.close()


def test_an_address_that_connects_too_often_is_closed() -> None:
    """After a moment, so that it does not come back at once; others are served (KIP-612)."""
    quiet = Quiet(Limits())
    quiet.server.change_address_rates(AddressRates(None, {"10.0.0.1": 1.0}))
    streams = [quiet.connect(host="10.0.0.1") for _ in range(13)]
    assert len(quiet.server.connections) == 10
    assert quiet.server.turned_away == 3
    assert all(quiet.is_open(stream) for stream in streams)
    assert quiet.is_open(quiet.connect(host="10.0.0.2"))
    quiet.clock.advance(1000)
    assert [quiet.is_open(stream) for stream in streams] == [True] * 10 + [False] * 3
    quiet.clock.advance(11_000)
    assert quiet.is_open(quiet.connect(host="10.0.0.1"))
    assert quiet.server.turned_away == 3
    quiet.server.change_address_rates(AddressRates(1.0, {"10.0.0.1": 1000.0}))
    for _ in range(30):
        quiet.connect(host="10.0.0.1")
    assert quiet.server.turned_away == 3
    for _ in range(12):
        quiet.connect(host="10.0.0.3")
    assert quiet.server.turned_away == 5
    quiet.server.close()


def test_addresses_that_connect_too_often_hold_no_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond a limit they are closed at once."""
    monkeypatch.setattr(server_module, "CLOSING_LATER_MAX", 2)
    quiet = Quiet(Limits())
    quiet.server.change_address_rates(AddressRates(1.0))
    streams = [quiet.connect() for _ in range(15)]
    assert [quiet.is_open(stream) for stream in streams] == [True] * 12 + [False] * 3
    quiet.server.close()
