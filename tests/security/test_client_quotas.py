"""Which quota holds for whom, who shares one, and how much is remembered."""

from __future__ import annotations

from itertools import product

import pytest

from ottla.security.quotas import client_quotas
from ottla.security.quotas.client_quotas import AddressRates, ClientQuotas, address_rates
from ottla.security.quotas.entities import (
    BadQuota,
    Entity,
    altered,
    entity_of,
    quotas_of,
    value_text,
)
from ottla.security.quotas.rates import Windows

USER, CLIENT = "user", "client-id"
# Kafka's order, as its documentation has it: the most specific first.
ORDER: list[Entity] = [
    ((USER, "alice"), (CLIENT, "app")),
    ((USER, "alice"), (CLIENT, None)),
    ((USER, "alice"),),
    ((USER, None), (CLIENT, "app")),
    ((USER, None), (CLIENT, None)),
    ((USER, None),),
    ((CLIENT, "app"),),
    ((CLIENT, None),),
]


def quotas(limits: dict[Entity, float]) -> ClientQuotas:
    made = ClientQuotas(Windows(), Windows())
    made.configure({each: {"producer_byte_rate": str(rate)} for each, rate in limits.items()})
    return made


def limit(of: ClientQuotas, user: str, client_id: str) -> float | None:
    meter = of.client(user, client_id, 0).produce
    return None if meter is None else meter.limit


def test_the_most_specific_quota_holds() -> None:
    """Of all that there may be, the first in Kafka's order, whichever others there are."""
    for present in product((False, True), repeat=len(ORDER)):
        there = {
            entity: float(place + 1)
            for place, (entity, is_there) in enumerate(zip(ORDER, present, strict=True))
            if is_there
        }
        expected = min(there.values(), default=None)
        assert limit(quotas(there), "alice", "app") == expected, there


def test_others_have_the_defaults() -> None:
    """Somebody without an entity of his own, and whoever has none at all."""
    found = quotas({((USER, None),): 5.0, ((USER, "alice"),): 7.0})
    assert limit(found, "bob", "x") == 5.0
    assert limit(quotas({((CLIENT, "app"),): 5.0}), "alice", "other") is None
    assert limit(quotas({((CLIENT, None),): 5.0}), "alice", "") is None


def test_client_ids_of_one_user_share_the_users_quota() -> None:
    """And users with one client id share that one's."""
    by_user = quotas({((USER, None),): 5.0})
    assert by_user.client("alice", "a", 0).produce is by_user.client("alice", "b", 0).produce
    assert by_user.client("alice", "a", 0).produce is not by_user.client("bob", "a", 0).produce
    by_client = quotas({((CLIENT, None),): 5.0})
    assert by_client.client("alice", "a", 0).produce is by_client.client("bob", "a", 0).produce
    both = quotas({((USER, None), (CLIENT, None)): 5.0})
    assert both.client("alice", "a", 0).produce is not both.client("alice", "b", 0).produce


def test_a_changed_quota_keeps_what_was_used() -> None:
    """Clients cannot begin anew by having their quota changed; without one nothing is kept."""
    entity: Entity = ((USER, "alice"),)
    found = quotas({entity: 5.0})
    meter = found.client("alice", "a", 0).produce
    assert meter is not None
    meter.rate.record(100, 0)
    found.configure({entity: {"producer_byte_rate": "9"}})
    assert found.client("alice", "a", 0).produce is meter
    assert meter.limit == 9
    found.configure({})
    assert not found.any
    assert list(found.meters()) == []


def test_client_ids_without_end_do_not_grow_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit those are forgotten that were quiet for as long as the windows last."""
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 10)
    monkeypatch.setattr(client_quotas, "METERS_MAX", 10)
    found = quotas({((CLIENT, None),): 5.0})
    for number in range(100):
        now_ms = number * 2_000
        meter = found.client("alice", f"c{number}", now_ms).produce
        assert meter is not None
        meter.rate.record(1, now_ms)
        assert len(list(found.meters())) <= 10


def test_addresses_are_known_by_their_one_form() -> None:
    """However an operator has written them."""
    rates = address_rates(
        {
            (("ip", "2001:DB8:0:0::1"),): {"connection_creation_rate": "3"},
            (("ip", "::ffff:10.0.0.1"),): {"connection_creation_rate": "4"},
            (("ip", None),): {"connection_creation_rate": "5"},
            ((USER, "alice"),): {"producer_byte_rate": "6"},
        }
    )
    assert [rates.of(each) for each in ("2001:db8::1", "10.0.0.1", "10.0.0.2")] == [3, 4, 5]
    assert AddressRates().of("10.0.0.1") is None


def test_credentials_beside_quotas_stay() -> None:
    """Those of a user are in the same node, and no quota."""
    entity = entity_of([(USER, "alice")])
    old = {"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "5"}
    new = altered(old, entity, [("producer_byte_rate", None), ("request_percentage", 0.5)])
    assert new == {"SCRAM-SHA-256": "salt=x", "request_percentage": "0.5"}
    assert quotas_of(new) == {"request_percentage": 0.5}
    assert altered(old, entity, [("SCRAM-SHA-256", None)]) == old
    with pytest.raises(BadQuota, match="Invalid configuration key SCRAM-SHA-256"):
        altered(old, entity, [("SCRAM-SHA-256", 1.0)])


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 1024.0, "1024"),
        ("producer_byte_rate", 1e-7 + 5, "5"),
        ("producer_byte_rate", 2.0**63, str(2**63 - 1)),
        ("request_percentage", 50.0, "50.0"),
        ("connection_creation_rate", 7.0, "7"),
    ],
)
def test_values_are_written_as_kafka_3_wrote_them(key: str, value: float, text: str) -> None:
    """Whole numbers without a point."""
    assert value_text(key, value) == text
