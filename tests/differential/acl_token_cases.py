"""Delegation tokens: what users may ask, for themselves and for others, and a login by one.

Kafka computes what each token logs in with when it learns of it, at each change, twice: some tens
of milliseconds of a processor. So few are made, and one does for all versions.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

from ottla.security.sasl.scram import ScramClient
from tests.apache.client import RawClient
from tests.apache.messages import Fields
from tests.differential.acl_brokers import (
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER,
    Right,
    UserPeer,
)
from tests.differential.acl_case import case
from tests.differential.peer import PATIENCE_S

CREATE, RENEW = "CreateDelegationToken", "RenewDelegationToken"
EXPIRE, DESCRIBED = "ExpireDelegationToken", "DescribeDelegationToken"
DAY_MS = 24 * 3_600_000
OWNER_FROM = 3
OWNER = "owner"
MISSING, EXPIRED = 62, 66
MECHANISM = "SCRAM-SHA-512"


def creation(
    *renewers: str, owner: str | None = None, lifetime_ms: int = -1, kind: str | None = "User"
) -> Fields:
    return {
        "owner_principal_type": kind if owner is not None else None,
        "owner_principal_name": owner,
        "renewers": [
            {"principal_type": kind, "principal_name": name}
            for kind, _, name in (each.partition(":") for each in renewers)
        ],
        "max_lifetime_ms": lifetime_ms,
    }


def owners(*names: str) -> Fields:
    return {"owners": [{"principal_type": "User", "principal_name": each} for each in names]}


def made(peer: UserPeer, label: str, *renewers: str, owner: str | None = None) -> bytes:
    """By the user itself or, with another owner, by the admin; once, and known everywhere then.

    Kafka's controller learns of a token after it has answered.
    """
    kept: dict[str, bytes] = vars(peer).setdefault("kept", {})
    if label not in kept:
        asks = peer if owner is None else peer.admin
        answer = asks.quietly(CREATE, 3, creation(*renewers, owner=owner, lifetime_ms=2 * DAY_MS))
        assert answer["error_code"] == 0, answer
        kept[label] = bytes(answer["hmac"])
        wait_for(peer, lambda: not is_missing(renewed(peer, kept[label])))
    return kept[label]


def renewed(peer: UserPeer, proof: bytes) -> Fields:
    """By the admin, who is neither owner nor renewer, so that nothing changes."""
    return peer.admin.quietly(RENEW, 2, {"renew_period_ms": -1, "hmac": proof})


def wait_for(peer: UserPeer, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{peer.user} waits for a token"
        time.sleep(0.05)


def is_missing(answer: Fields) -> bool:
    return bool(answer["error_code"] == MISSING)


@case(CREATE, topics="")
def tokens(peer: UserPeer, version: int) -> None:
    for lifetime_ms in (-1, 0, 60_000, 2 * DAY_MS, 30 * DAY_MS) if version == 1 else ():
        peer.ask(CREATE, version, creation(lifetime_ms=lifetime_ms), f"lives {lifetime_ms}")
    peer.ask(CREATE, version, creation("User:a", "User:b:c", "User:a", "User:"), "renewers")
    peer.ask(CREATE, version, creation("User:a", "Group:b"), "a group renews")


@case(CREATE, Right(USER, CREATE_TOKENS, OWNER), topics="")
def tokens_for_others(peer: UserPeer, version: int) -> None:
    if version < OWNER_FROM:
        return
    other = peer.name(OWNER)
    peer.ask(CREATE, version, creation("User:a", owner=other), "for another")
    peer.ask(CREATE, version, creation("Group:a", owner=other), "a group for another")
    peer.ask(CREATE, version, creation("Group:a", owner=""), "a group for nobody")
    peer.ask(CREATE, version, creation(owner=peer.user), "for oneself")
    peer.ask(CREATE, version, creation(owner=other, kind="Group"), "for a group")
    peer.ask(CREATE, version, creation(owner=other, kind=""), "for no kind")
    peer.ask(CREATE, version, creation(owner=other, kind=None), "for a kind that is null")


@case(RENEW, topics="")
def renewals(peer: UserPeer, version: int) -> None:
    own = made(peer, "own")
    renewable = made(peer, "renewable", f"User:{peer.user}", owner=peer.name(OWNER))
    others = made(peer, "another's", owner=peer.name(OWNER))
    for period_ms in (-1, 0, 60_000, 3 * DAY_MS) if version == 1 else (60_000,):
        fields: Fields = {"renew_period_ms": period_ms}
        peer.ask(RENEW, version, fields | {"hmac": own}, f"own for {period_ms}")
    fields = {"renew_period_ms": -1}
    peer.ask(RENEW, version, fields | {"hmac": renewable}, "renewable")
    peer.ask(RENEW, version, fields | {"hmac": others}, "another's")
    for unknown in (b"", b"x", own[:-1]):
        peer.ask(RENEW, version, fields | {"hmac": unknown}, "unknown")
    # Who asked for a token is not its owner.
    peer.keep("by the admin", RENEW, renewed(peer, others))


@case(EXPIRE, topics="")
def expiries(peer: UserPeer, version: int) -> None:
    own = made(peer, f"own {version}")
    others = made(peer, "another's", owner=peer.name(OWNER))
    now: Fields = {"expiry_time_period_ms": -1}
    peer.ask(EXPIRE, version, {"expiry_time_period_ms": 3 * DAY_MS, "hmac": own}, "in 3 days")
    peer.ask(EXPIRE, version, {"expiry_time_period_ms": 60_000, "hmac": own}, "in a minute")
    peer.ask(EXPIRE, version, now | {"hmac": others}, "another's")
    peer.ask(EXPIRE, version, now | {"hmac": b"x"}, "unknown")
    if version > 1:
        peer.ask(EXPIRE, version, now | {"hmac": own}, "own now")
        wait_for(peer, lambda: is_missing(renewed(peer, own)))
        peer.ask(EXPIRE, version, now | {"hmac": own}, "once more")
        return
    renewable = made(peer, "renewable", f"User:{peer.user}", owner=peer.name(OWNER))
    peer.ask(EXPIRE, version, {"expiry_time_period_ms": 0, "hmac": renewable}, "in no time")
    wait_for(peer, lambda: renewed(peer, renewable)["error_code"] == EXPIRED)
    peer.ask(RENEW, 2, {"renew_period_ms": -1, "hmac": renewable}, "renewed too late")
    peer.keep("by the admin, too late", RENEW, renewed(peer, renewable))
    peer.ask(EXPIRE, version, {"expiry_time_period_ms": 0, "hmac": renewable}, "again")
    peer.ask(EXPIRE, version, now | {"hmac": renewable}, "expired now")
    wait_for(peer, lambda: is_missing(renewed(peer, renewable)))
    peer.ask(DESCRIBED, 3, owners(peer.user), "what is left")


@case(DESCRIBED, Right(USER, DESCRIBE_TOKENS, OWNER), topics="")
def shown(peer: UserPeer, version: int) -> None:
    other, third = peer.name(OWNER), peer.name("third")
    made(peer, "own", "User:r")
    made(peer, "renewable", f"User:{peer.user}", owner=third)
    made(peer, "another's", "User:r", owner=other)
    asked = owners(peer.user, other, third)
    wait_for(peer, lambda: len(peer.admin.quietly(DESCRIBED, 3, asked)["tokens"]) == 3)
    for names in ((peer.user,), (other,), (third,), (peer.user, third), (third, "r"), ("x",), ()):
        peer.ask(DESCRIBED, version, owners(*names), ",".join(names))


@case(DESCRIBED, Right(DELEGATION_TOKEN, DESCRIBE, "*"), topics="")
def shown_by_its_id(peer: UserPeer, version: int) -> None:
    other = peer.name(OWNER)
    made(peer, "another's", "User:r", owner=other)
    wait_for(peer, lambda: len(peer.admin.quietly(DESCRIBED, 3, owners(other))["tokens"]) == 1)
    peer.ask(DESCRIBED, version, owners(other), "another's")


@case(DESCRIBED, topics="")
def a_login(peer: UserPeer, version: int) -> None:
    """By a token, and what its holder may ask: nothing about tokens."""
    proof = made(peer, "own")
    wait_for(peer, lambda: bool(peer.quietly(DESCRIBED, 3, owners(peer.user))["tokens"]))
    [token] = peer.quietly(DESCRIBED, 3, owners(peer.user))["tokens"]
    password = base64.b64encode(proof).decode()
    guesses = [
        (token["token_id"], "a guess", True),
        (token["token_id"], password, False),
        ("AAAAAAAAAAAAAAAAAAAAAA", password, True),
        (peer.user, password, True),
    ]
    logins = [(token["token_id"], password, True), *(guesses if version == 1 else ())]
    for number, (name, secret, by_token) in enumerate(logins):
        with RawClient(peer.port) as holder:
            answer = log_in(holder, ScramClient(MECHANISM, name, secret, by_token=by_token))
            answer["auth_bytes"] = b""
            peer.keep(f"login {number}", "SaslAuthenticate", answer)
            if answer["error_code"]:
                continue
            asked: list[tuple[str, int, Fields]] = [
                (CREATE, 3, creation()),
                (CREATE, 3, creation(owner=peer.name("x"))),
                (RENEW, 2, {"renew_period_ms": -1, "hmac": proof}),
                (EXPIRE, 2, {"expiry_time_period_ms": -1, "hmac": proof}),
                (DESCRIBED, version, {"owners": None}),
            ]
            for api, at, fields in asked:
                peer.keep(f"{api} by a token", api, holder.ask(api, at, fields))


def without_a_key(peer: UserPeer) -> None:
    """All that may be asked about tokens, of a broker that has none."""
    for version in (1, 2, 3):
        for fields in (creation(), creation("Group:x"), creation(owner=peer.name(OWNER))):
            peer.ask(CREATE, version, fields)
        for fields in ({"owners": None}, owners(), owners(peer.user)):
            peer.ask(DESCRIBED, version, fields)
    for version in (1, 2):
        peer.ask(RENEW, version, {"renew_period_ms": -1, "hmac": b"x"})
        peer.ask(EXPIRE, version, {"expiry_time_period_ms": -1, "hmac": b"x"})


def log_in(client: RawClient, scram: ScramClient) -> Fields:
    """The last answer of the broker."""
    assert client.ask("SaslHandshake", 1, {"mechanism": MECHANISM})["error_code"] == 0
    token: bytes | None = scram.first()
    while token is not None:
        answer = client.ask("SaslAuthenticate", 2, {"auth_bytes": token})
        if answer["error_code"]:
            break
        token = scram.answer(bytes(answer["auth_bytes"]))
    return answer
