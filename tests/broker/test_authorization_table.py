"""The table of API × resource × operation is whole."""

from __future__ import annotations

from ottla.broker.authorization.table import TABLE
from ottla.broker.dispatch import BROKER_HANDLERS, HANDLERS
from ottla.security.acls import Operation, ResourceType

# Whoever is connected may ask these.
FREE = {"SaslHandshake": 17, "ApiVersions": 18, "SaslAuthenticate": 36}
# Whoever shows what proves a token that is theirs.
OWN_TOKENS = {"RenewDelegationToken": 39, "ExpireDelegationToken": 40}


def test_each_api_has_a_line() -> None:
    """An API that is served without one could be asked by nobody, or by everybody."""
    served = HANDLERS.keys() | BROKER_HANDLERS.keys()
    assert served - TABLE.keys() == set()


def test_only_what_comes_before_a_login_is_free() -> None:
    """All other APIs need a right, or show less without one."""
    free = {key for key, guard in TABLE.items() if not guard.needs}
    assert free == {*FREE.values(), *OWN_TOKENS.values()}


def test_what_is_between_brokers_needs_cluster_action() -> None:
    """And nothing else will do."""
    for key in BROKER_HANDLERS:
        assert TABLE[key].needs == ((ResourceType.CLUSTER, Operation.CLUSTER_ACTION),)
