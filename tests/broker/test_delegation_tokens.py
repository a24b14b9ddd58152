"""Delegation tokens (KIP-48), request by request: who may ask, what Kafka refuses, and the tree."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.context import Peer, PeerError
from ottla.cluster import token_nodes, token_writes
from ottla.cluster.requests import NewToken, TokenOutcome, TokenRenewal, TokenRequest
from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.tokens import Token
from ottla.wire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from ottla.wire.api.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.header import start_request
from ottla.wire.schema import writer

from .cluster_harness import Cluster
from .harness import BrokerHarness

KEY = "a key of all brokers"
DAY_MS, HOUR_MS = 24 * 3_600_000, 3_600_000
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093,SSL://127.0.0.1:9094",
    "security_inter_broker_protocol": "PLAINTEXT",
    "delegation_token_secret_key": KEY,
}


def peer(name: str = "", listener: str = "SASL_PLAINTEXT", *, by_token: bool = False) -> Peer:
    found = Peer(listener, "127.0.0.1:50000")
    found.principal = user(name) if name else ANONYMOUS
    found.by_token = by_token
    return found


class Tokens:
    """A broker that is asked by one user or another."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness

    @property
    def now_ms(self) -> int:
        return self.harness.clock.now_ms()

    def create(
        self, who: str, lifetime_ms: int = -1, renewers: tuple[str, ...] = (), **more: Any
    ) -> Any:
        asks = more.pop("peer", None) or peer(who)
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in (each.partition(":") for each in renewers)
            ],
            max_lifetime_ms=lifetime_ms,
            **more,
        )
        return self.harness.ask(request, 3, peer=asks)

    def renew(self, who: str, proof: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=proof, renew_period_ms=period_ms)
        answer: Any = self.harness.ask(request, 2, peer=peer(who))
        return answer.error_code, answer.expiry_timestamp_ms

    def expire(self, who: str, proof: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=proof, expiry_time_period_ms=period_ms)
        answer: Any = self.harness.ask(request, 2, peer=peer(who))
        return answer.error_code, answer.expiry_timestamp_ms

    def seen_by(self, who: str, *owners: str) -> list[str]:
        asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each)
                 for each in owners]  # fmt: skip
        request = DescribeDelegationTokenRequest(owners=asked or None)
        answer: Any = self.harness.ask(request, 3, peer=peer(who))
        assert answer.error_code == 0
        return [each.token_id for each in answer.tokens]


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    with BrokerHarness(**SETTINGS) as harness:
        yield Tokens(harness)


def test_a_token_is_issued_and_shown(tokens: Tokens) -> None:
    """Its HMAC is Kafka's, of its id and the key; it holds a day, and a week with renewals."""
    made = tokens.create("alice", renewers=("User:bob",))
    now_ms = tokens.now_ms
    assert made.error_code == 0
    assert made.hmac == hmac.digest(KEY.encode(), made.token_id.encode(), "sha512")
    assert len(base64.urlsafe_b64decode(made.token_id + "==")) == 16
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert made.token_requester_principal_name == "alice"
    assert made.issue_timestamp_ms == now_ms
    assert made.expiry_timestamp_ms == now_ms + DAY_MS
    assert made.max_timestamp_ms == now_ms + 7 * DAY_MS
    for version in (1, 2, 3):
        request = DescribeDelegationTokenRequest(owners=None)
        [shown] = tokens.harness.ask(request, version, peer=peer("bob")).tokens
        assert shown.token_id == made.token_id
        assert shown.hmac == made.hmac
        assert [each.principal_name for each in shown.renewers] == ["bob"]
        assert shown.token_requester_principal_name == ("alice" if version == 3 else "")
        assert (shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp) == (
            now_ms,
            now_ms + DAY_MS,
            now_ms + 7 * DAY_MS,
        )


def test_a_lifetime_is_cut_to_what_the_options_allow(tokens: Tokens) -> None:
    """A short one is kept; a long one, 0 and less are the longest."""
    for asked, lives in ((60_000, 60_000), (30 * DAY_MS, 7 * DAY_MS), (0, 7 * DAY_MS)):
        made = tokens.create("alice", asked)
        assert made.max_timestamp_ms - made.issue_timestamp_ms == lives
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == min(lives, DAY_MS)


@pytest.mark.parametrize(
    "asks",
    [
        peer("", "PLAINTEXT"),
        peer("", "SSL"),
        peer("alice", by_token=True),
    ],
    ids=["plaintext", "tls without a certificate", "by a token"],
)
def test_who_has_no_login_of_its_own_gets_no_token(asks: Peer) -> None:
    """Each of the four requests is refused, before anything else is looked at."""
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with BrokerHarness(**SETTINGS | {"delegation_token_secret_key": ""}) as harness:
        answer = Tokens(harness).create("", renewers=("Group:x",), peer=asks)
        assert (answer.error_code, answer.max_timestamp_ms, answer.hmac) == (refused, -1, b"")
        renewal: Any = harness.ask(RenewDelegationTokenRequest(), 2, peer=asks)
        assert (renewal.error_code, renewal.expiry_timestamp_ms) == (refused, -1)
        expiry: Any = harness.ask(ExpireDelegationTokenRequest(), 2, peer=asks)
        assert (expiry.error_code, expiry.expiry_timestamp_ms) == (refused, -1)
        described: Any = harness.ask(DescribeDelegationTokenRequest(), 3, peer=asks)
        assert described.error_code == refused


def test_without_a_key_there_are_no_tokens() -> None:
    """What Kafka looks at before that is refused first."""
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    with BrokerHarness(**SETTINGS | {"delegation_token_secret_key": ""}) as harness:
        tokens = Tokens(harness)
        answer = tokens.create("alice")
        assert (answer.error_code, answer.issue_timestamp_ms, answer.principal_name) == (
            disabled,
            0,
            "alice",
        )
        wrong = tokens.create("alice", renewers=("Group:x",))
        assert (wrong.error_code, wrong.issue_timestamp_ms) == (
            ErrorCode.INVALID_PRINCIPAL_TYPE,
            -1,
        )
        assert tokens.renew("alice", b"x") == (disabled, 0)
        assert tokens.expire("alice", b"x") == (disabled, 0)
        described: Any = harness.ask(DescribeDelegationTokenRequest(), 3, peer=peer("alice"))
        assert described.error_code == disabled


def test_owner_and_renewers_renew_and_end_a_token(tokens: Tokens) -> None:
    """Who only asked for it may see it, and no more; others learn that it is not theirs."""
    for_alice = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    made = tokens.create("admin", 3 * DAY_MS, ("User:bob",), **for_alice)
    assert made.principal_name == "alice"
    assert made.token_requester_principal_name == "admin"
    mismatch = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.renew("admin", made.hmac) == mismatch
    assert tokens.expire("mallory", made.hmac) == mismatch
    missing = (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert tokens.renew("alice", b"another") == missing
    assert tokens.expire("alice", made.hmac[:-1]) == missing
    tokens.harness.advance(2 * HOUR_MS)
    assert tokens.renew("bob", made.hmac) == (0, tokens.now_ms + DAY_MS)
    assert tokens.renew("alice", made.hmac, 1_000) == (0, tokens.now_ms + 1_000)
    assert tokens.renew("alice", made.hmac, 30 * DAY_MS) == (0, tokens.now_ms + DAY_MS)
    assert tokens.expire("alice", made.hmac, 30 * DAY_MS) == (0, made.max_timestamp_ms)
    assert tokens.expire("bob", made.hmac, 5_000) == (0, tokens.now_ms + 5_000)
    assert tokens.seen_by("admin") == [made.token_id]
    assert tokens.expire("bob", made.hmac) == (0, tokens.now_ms)
    assert tokens.expire("bob", made.hmac) == missing
    assert tokens.seen_by("alice") == []


def test_an_expired_token_is_removed_by_the_controller(tokens: Tokens) -> None:
    """At its next check; until then it can neither be renewed nor given more time."""
    made = tokens.create("alice", 90 * 60_000)
    kept = tokens.create("alice")
    tokens.harness.advance(91 * 60_000)
    assert tokens.seen_by("alice") == [made.token_id, kept.token_id]
    expired = (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.renew("alice", made.hmac) == expired
    assert tokens.renew("mallory", made.hmac) == expired  # as Kafka: no mismatch
    assert tokens.expire("alice", made.hmac, 0) == expired
    tokens.harness.advance(30 * 60_000)
    assert tokens.seen_by("alice") == [kept.token_id]


def test_a_token_is_for_a_user(tokens: Tokens) -> None:
    """Its login would be that of the user of the owner's name; the right to User:etl-x:admin is
    none to admin, whose token it would be."""
    for kind in ("Group", "User:etl-x", "user", ""):
        refused = tokens.create("alice", owner_principal_type=kind, owner_principal_name="admin")
        assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        assert refused.hmac == b""
    assert tokens.harness.broker.image.tokens == {}


@pytest.mark.parametrize("long", ["renewer", "owner"])
def test_names_that_no_message_could_carry_are_refused(tokens: Tokens, long: str) -> None:
    """Each byte that is not UTF-8 becomes three of U+FFFD: kept with such a name, a token would
    make each answer that shows it fail, for everybody who may see it."""
    name = "#" * 20_000
    names = {
        "owner_principal_type": "User",
        "owner_principal_name": name if long == "owner" else "b",
    }
    renewer = CreatableRenewers(principal_name=name if long == "renewer" else "b")
    renewer.principal_type = "User"
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1, **names)
    out = start_request(38, 3, 7, "test")
    writer(CreateDelegationTokenRequest, 3)(request, out)
    with pytest.raises(PeerError, match="20000 bytes is not UTF-8"):
        tokens.harness.handle(bytes(out[4:]).replace(b"#", b"\xff"), peer("alice"))
    assert tokens.harness.broker.image.tokens == {}


def test_nobody_takes_all_tokens_or_all_memory(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one who asks, for whomever, so many are kept; and of renewers what fits in 10,000 bytes.
    Others go on, until the cluster has its number; what has ended counts no more."""
    monkeypatch.setattr(token_writes, "TOKENS_OF_ONE_MAX", 2)
    monkeypatch.setattr(token_writes, "TOKENS_MAX", 3)
    refused = ErrorCode.POLICY_VIOLATION
    many = tuple(f"User:renewer-{number}" for number in range(1_000))
    assert tokens.create("alice", renewers=many).error_code == refused
    first = tokens.create("alice", renewers=many[:100])
    for_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    assert tokens.create("alice", **for_bob).error_code == ErrorCode.NONE
    assert tokens.create("alice").error_code == refused
    assert tokens.create("bob").error_code == ErrorCode.NONE
    assert tokens.create("bob").error_code == refused
    assert tokens.expire("alice", first.hmac)[0] == ErrorCode.NONE
    assert tokens.create("alice").error_code == ErrorCode.NONE


def test_owners_choose_among_what_may_be_seen(tokens: Tokens) -> None:
    """A token concerns its owner, its renewers and who asked for it; no owners: nothing."""
    first = tokens.create("alice", renewers=("User:bob",)).token_id
    second = tokens.create("bob").token_id
    tokens.create("carol")
    with_all = tokens.seen_by("root", "alice")
    assert with_all == [first]  # without an authorizer everybody may see everything
    assert tokens.seen_by("alice", "bob") == [first, second]
    none = DescribeDelegationTokenRequest(owners=[])
    assert tokens.harness.ask(none, 3, peer=peer("alice")).tokens == []


def test_tokens_outlive_the_broker() -> None:
    """They are in its tree, where Kafka had them, without what proves them."""
    with BrokerHarness(**SETTINGS) as first:
        tokens = Tokens(first)
        made = tokens.create("Ä/b ~*", renewers=("User:..", "User:a:b"))
        before = first.broker.image.tokens
        disk, clock = first.disk, first.clock
    assert len(before) == 1
    with BrokerHarness(disk=disk, clock=clock, **SETTINGS) as second:
        assert second.broker.image.tokens == before
        tokens = Tokens(second)
        assert tokens.renew("a:b", made.hmac)[0] == 0
        assert tokens.expire("Ä/b ~*", made.hmac)[0] == 0
        disk, clock = second.disk, second.clock
    with BrokerHarness(disk=disk, clock=clock, **SETTINGS) as third:
        assert third.broker.image.tokens == {}


def test_another_key_ends_what_was_handed_out() -> None:
    """As in Kafka the tokens stay, with other proofs: who may see them is shown what holds now."""
    with BrokerHarness(**SETTINGS) as first:
        made = Tokens(first).create("alice")
        disk, clock = first.disk, first.clock
    other = {**SETTINGS, "delegation_token_secret_key": "another key"}
    with BrokerHarness(disk=disk, clock=clock, **other) as second:
        tokens = Tokens(second)
        missing = (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
        assert tokens.renew("alice", made.hmac) == missing
        assert tokens.expire("alice", made.hmac) == missing
        request = DescribeDelegationTokenRequest(owners=None)
        [shown] = second.ask(request, 3, peer=peer("alice")).tokens
        assert shown.token_id == made.token_id
        assert shown.hmac != made.hmac
        assert tokens.expire("alice", shown.hmac)[0] == ErrorCode.NONE


def change(cluster: Cluster, broker_id: int, wanted: TokenRequest) -> TokenOutcome:
    """As a broker asks for it whose client has the right to."""
    broker = cluster.brokers[broker_id]
    outcome = cluster.run(broker.node, broker.broker.controller.change_token(wanted))
    assert isinstance(outcome, TokenOutcome)
    return outcome


def test_all_brokers_of_a_cluster_have_them() -> None:
    """Whichever is asked, the controller learns who asks; the next controller goes on with them,
    and removes what expires."""
    alice, bob = user("alice"), user("bob")
    with Cluster(3, delegation_token_secret_key=KEY) as cluster:
        made = change(cluster, 3, NewToken(alice, bob, (Principal("User", "c"),), 2 * HOUR_MS))
        assert made.token is not None
        assert made.hmac == hmac.digest(KEY.encode(), made.token.id.encode(), "sha512")
        assert cluster.image(3).tokens == {made.token.id: made.token}  # before it was answered
        cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
        renewal = change(cluster, 2, TokenRenewal(user("c"), made.hmac, HOUR_MS))
        assert renewal.error_code == ErrorCode.NONE
        assert change(cluster, 3, TokenRenewal(bob, made.hmac)).error_code == (
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        )
        former = cluster.brokers[cluster.controller_id]
        former.crash()
        cluster.host(2)
        cluster.wait(lambda: cluster.image(3).controller_id == 2)
        for each in (2, 3):
            [kept] = cluster.image(each).tokens.values()
            assert renewal.token is not None
            assert kept == made.token._replace(expires_ms=renewal.token.expires_ms)
        cluster.wait(lambda: not cluster.image(3).tokens, limit_s=3 * 3600.0)


def test_a_token_of_apache_kafka_is_read() -> None:
    """Of its versions before 3 too, where who asked was the owner; a broken one is passed over."""
    alice, bob = user("alice"), Principal("User", "b b")
    token = Token("id", alice, bob, (bob,), 1, 2, 3)
    value = token_nodes.value_of(token)
    assert b'"owner":"User%3Aalice"' in value
    assert b'"renewers":["User%3Ab%20b"]' in value
    assert token_nodes.read_value(token_nodes.path_of("id"), value) == token
    older = value.replace(b'"version":3', b'"version":2')
    found = {
        token_nodes.path_of("id"): (value, 0),
        token_nodes.path_of("older"): (older, 0),
        token_nodes.path_of("broken"): (b'{"version":3,"owner":7}', 0),
    }
    assert token_nodes.read_tokens(found) == {
        "id": token,
        "older": token._replace(id="older", requester=alice),
    }
