"""Delegation tokens: what is decided about them, and three brokers that let their holders in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import Producer
from ottla.admin import Admin
from ottla.cli.server_sasl import Known
from ottla.client.admin.tokens import Tokens
from ottla.cluster.image import ClusterImage
from ottla.errors import (
    IllegalArgumentError,
    SaslAuthenticationFailedError,
    UnsupportedVersionError,
)
from ottla.security.principal import Principal, user
from ottla.security.tokens import (
    Token,
    TokenOptions,
    TokenTable,
    expiring,
    issued,
    renewed,
    shown,
)
from ottla.settings import Settings
from ottla.wire.api.create_delegation_token import CreateDelegationTokenResponse
from tests.waiting import eventually

from .clusters import SHOP, client_options, secured_cluster

LONGEST_MS = 2**62
times = st.integers(0, LONGEST_MS)
periods = st.integers(-2, LONGEST_MS) | st.just(2**63 - 1)
lifetimes = st.integers(1, LONGEST_MS) | st.just(2**63 - 1)
names = st.sampled_from(["alice", "bob", "carol", "dave"]).map(user)


@given(data=st.data(), longest_ms=lifetimes, usual_ms=lifetimes, start_ms=times)
def test_a_token_never_outlives_its_end(
    data: st.DataObject, longest_ms: int, usual_ms: int, start_ms: int
) -> None:
    """However it is renewed and cut: it ends neither after what was asked for when it was made, nor
    later from now than the options allow; and nothing overflows Kafka's numbers."""
    options = TokenOptions("key", longest_ms, usual_ms)
    asked_ms = data.draw(periods)
    token = issued(options, "id", user("a"), user("b"), [user("c")], asked_ms, start_ms)
    most_ms = min(asked_ms, longest_ms) if asked_ms > 0 else longest_ms
    assert token.max_ms == min(start_ms + most_ms, 2**63 - 1)
    now_ms = start_ms
    for _ in range(data.draw(st.integers(0, 4))):
        now_ms += data.draw(st.integers(0, 2 * usual_ms))
        period_ms = data.draw(periods)
        if data.draw(st.booleans()):
            token = renewed(options, token, period_ms, now_ms)
            assert token.expires_ms <= now_ms + usual_ms
        else:
            cut = expiring(token, period_ms, now_ms)
            assert (cut is None) == (period_ms < 0)
            token = cut or token
        assert token.expires_ms <= token.max_ms <= 2**63 - 1
        assert token.is_over(now_ms) == (now_ms > token.expires_ms)
        assert token._replace(expires_ms=0) == issued(
            options, "id", user("a"), user("b"), [user("c")], asked_ms, start_ms
        )._replace(expires_ms=0)


@given(st.lists(st.sets(st.integers(0, 9), max_size=6), max_size=5))
def test_an_hmac_finds_its_token(rounds: list[set[int]]) -> None:
    """As if every token were looked at each time; those that are gone are found no more."""
    options = TokenOptions("key")
    table = TokenTable(options)
    for there in rounds:
        tokens = {str(n): Token(str(n), user("a"), user("a"), (), 0, 1, n) for n in there}
        for number in range(10):
            expected = tokens.get(str(number))
            assert table.find(tokens, options.hmac_of(str(number))) == expected
        assert table.find(tokens, b"") is None
        assert table.find(tokens, TokenOptions("another").hmac_of("1")) is None


@given(
    st.lists(st.tuples(names, names, st.lists(names, max_size=2)), max_size=5),
    names,
    st.none() | st.lists(names, max_size=2),
    st.sets(names),
)
def test_nobody_sees_what_does_not_concern_it(
    made: list[tuple[Principal, Principal, list[Principal]]],
    asks: Principal,
    owners: list[Principal] | None,
    visible: set[Principal],
) -> None:
    """But for those it has a right to; and of these only what it asked for."""
    tokens = {
        str(number): Token(str(number), owner, requester, tuple(renewers), 0, 1, 2)
        for number, (owner, requester, renewers) in enumerate(made)
    }
    expected = []
    for token in tokens.values():
        about = {token.owner, token.requester, *token.renewers}
        if owners is not None and about.isdisjoint(owners):
            continue
        if asks in about or token.owner in visible:
            expected.append(token)
    assert shown(tokens, asks, owners, lambda token: token.owner in visible) == expected


class CountedPrincipal(Principal):
    """Notes how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedPrincipal.compared += 1
        return super().__eq__(other)

    __hash__ = Principal.__hash__


def test_many_owners_are_not_compared_with_each_token() -> None:
    """A request may name a million, of a hundred thousand tokens."""
    tokens = {
        str(number): Token(str(number), user(f"o{number}"), user("r"), (user("s"),), 1, 2, 3)
        for number in range(100)
    }
    CountedPrincipal.compared = 0
    owners = [CountedPrincipal("User", f"o{number}") for number in range(50, 250)]
    found = shown(tokens, user("admin"), owners, lambda token: True)
    assert [each.id for each in found] == [str(number) for number in range(50, 100)]
    assert CountedPrincipal.compared < 1_000  # each with each: 60,000


def test_no_user_logs_in_by_a_token_of_another_kind() -> None:
    """Apache Kafka may have left one in the tree; its owner is not the user of that name."""
    settings = Settings.from_properties({"delegation.token.secret.key": "key"})
    clock: Any = SimpleNamespace(now_ms=lambda: 0)
    made = {
        owner.kind: Token(owner.kind, owner, user("r"), (), 0, 1, 1)
        for owner in (user("admin"), Principal("Group", "admin"))
    }
    known = Known(settings, clock, lambda: ClusterImage(tokens=made))
    login = known._token("User")
    assert login is not None
    assert login.owner == "admin"
    assert known._token("Group") is None


class OlderBroker(Tokens):
    """One that has no place for an owner."""

    def _ask(self, *_: Any, **__: Any) -> Any:
        return CreateDelegationTokenResponse(
            principal_type="User", principal_name="me", token_id="id", hmac=b"mine"
        )


def test_a_token_of_ones_own_is_not_given_away_for_another() -> None:
    """A broker that is too old to make one for another makes one for who asks."""
    admin = OlderBroker()
    assert admin.create_delegation_token().owner == "User:me"
    assert admin.create_delegation_token(owner="User:me").requester == "User:me"
    with pytest.raises(UnsupportedVersionError, match="too old to create tokens for another"):
        admin.create_delegation_token(owner="User:alice")
    with pytest.raises(IllegalArgumentError, match="Try: User:alice"):
        admin.create_delegation_token(owner="alice")
    with pytest.raises(IllegalArgumentError, match="Base64"):
        admin.renew_delegation_token("no HMAC")


@pytest.mark.xdist_group("cluster")
def test_a_token_is_good_at_every_broker_of_a_cluster(tmp_path: Path) -> None:
    """Over SASL_SSL with ACLs, made through whichever broker; also after a broker was killed, the
    controller's perhaps; and ended at one it is ended at all."""
    options: dict[str, object] = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "delegation.token.secret.key": "a key of all brokers",
    }
    with secured_cluster(tmp_path, options) as cluster:
        shop = client_options(cluster.trusted, SHOP)
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **shop) as owner:
            token = owner.create_delegation_token()
        holder = {
            **shop,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": token.token_id,
            "sasl_plain_password": token.password,
            "sasl_token_auth": True,
        }

        def known_to(address: str) -> bool:
            try:
                Admin(bootstrap_servers=address, **holder).close()
            except SaslAuthenticationFailedError:
                return False
            return True

        addresses = cluster.bootstrap_servers.split(",")
        assert len(addresses) == 3
        for each in addresses:
            eventually(lambda each=each: known_to(each), "the token is known")  # type: ignore[misc]
        cluster.kill(1)
        rest = addresses[1:]
        with Admin(bootstrap_servers=rest, **shop) as owner:
            assert owner.renew_delegation_token(token.hmac) >= token.expiry_timestamp
            for each in rest:
                assert known_to(each)
            owner.expire_delegation_token(token.hmac)
        for each in rest:
            eventually(lambda each=each: not known_to(each), "the token is gone")  # type: ignore[misc]
        with (
            pytest.raises(SaslAuthenticationFailedError),
            Producer(bootstrap_servers=rest, **holder),
        ):
            pass
