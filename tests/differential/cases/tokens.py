"""Delegation tokens without a login: with one, in acl_token_cases.py."""

from __future__ import annotations

from tests.differential.case import case
from tests.differential.peer import Peer


@case("CreateDelegationToken")
def without_a_login(peer: Peer, version: int) -> None:
    group = {"principal_type": "Group", "principal_name": "g"}
    fields = {"renewers": [group], "max_lifetime_ms": -1}
    peer.ask("CreateDelegationToken", version, fields | {"owner_principal_name": None})
    if version >= 3:
        for kind in ("User", "", None):
            named = {"owner_principal_type": kind, "owner_principal_name": "alice"}
            peer.ask("CreateDelegationToken", version, fields | named, f"for a {kind}")


@case("RenewDelegationToken")
def renewal_without_a_login(peer: Peer, version: int) -> None:
    peer.ask("RenewDelegationToken", version, {"hmac": b"x", "renew_period_ms": -1})


@case("ExpireDelegationToken")
def expiry_without_a_login(peer: Peer, version: int) -> None:
    peer.ask("ExpireDelegationToken", version, {"hmac": b"x", "expiry_time_period_ms": -1})


@case("DescribeDelegationToken")
def description_without_a_login(peer: Peer, version: int) -> None:
    for owners in (None, [], [{"principal_type": "User", "principal_name": "alice"}]):
        peer.ask("DescribeDelegationToken", version, {"owners": owners})
