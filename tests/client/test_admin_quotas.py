"""Quotas through the admin client, on Ottla and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin import (
    Admin,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from ottla.client.errors import IllegalArgumentError, InvalidRequestError
from tests.waiting import eventually

BOTH = ClientQuotaEntity({"user": "quota-user", "client-id": None})
USER = ClientQuotaEntity({"user": "quota-user"})


@pytest.fixture
def admin(any_bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=any_bootstrap) as made:
        yield made


def test_quotas_are_set_shown_and_removed(admin: Admin) -> None:
    """By entity; a filter says which, and None takes a value away."""
    rates = {"producer_byte_rate": 1e6, "request_percentage": 250.5}
    outcomes = admin.alter_client_quotas(
        [
            ClientQuotaAlteration(USER, rates),
            ClientQuotaAlteration({"client-id": None, "user": "quota-user"}, {"bad": 1.0}),
        ]
    )
    assert outcomes == {USER: None, BOTH: "Invalid configuration key bad"}
    exact = ClientQuotaFilterComponent.of_entity("user", "quota-user")
    eventually(
        lambda: admin.describe_client_quotas(ClientQuotaFilter.contains([exact])) == {USER: rates}
    )
    any_client = ClientQuotaFilterComponent.of_entity_type("client-id")
    assert admin.describe_client_quotas(ClientQuotaFilter.contains_only([exact, any_client])) == {}
    removal = ClientQuotaAlteration(USER, dict.fromkeys(rates))
    assert admin.alter_client_quotas([removal], validate_only=True) == {USER: None}
    assert admin.describe_client_quotas()[USER] == rates
    assert admin.alter_client_quotas([removal]) == {USER: None}
    eventually(lambda: USER not in admin.describe_client_quotas())


def test_what_is_wrong_is_said(admin: Admin) -> None:
    """As the broker says it; what is no alteration is refused here."""
    component = ClientQuotaFilterComponent("user", 0)
    with pytest.raises(InvalidRequestError, match="MATCH_TYPE_EXACT"):
        admin.describe_client_quotas(ClientQuotaFilter.contains([component]))
    with pytest.raises(IllegalArgumentError, match="ClientQuotaAlteration"):
        admin.alter_client_quotas([USER])  # type: ignore[list-item]
