"""kafka-delegation-tokens.sh: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import DelegationToken

PRINCIPAL = "[PRINCIPAL]"
MILLISECONDS = "[MS]"
COLUMNS = (
    ("TOKENID", 15), ("HMAC", 30), ("OWNER", 15), ("REQUESTER", 15), ("RENEWERS", 25),
    ("ISSUEDATE", 15), ("EXPIRYDATE", 15), ("MAXDATE", 15),
)  # fmt: skip

PARSER = Parser(
    "kafka-delegation-tokens.sh",
    "create, renew, expire and describe delegation tokens",
    [
        BOOTSTRAP,
        COMMAND_CONFIG._replace(required=True),
        Option("create", about="create a token for who the client logs in as"),
        Option("renew", about="let a token hold longer"),
        Option("expire", about="let a token end earlier, or now"),
        Option("describe", about="show the tokens that one may see"),
        Option("owner-principal", PRINCIPAL, "whose tokens, as User:alice; with --create: whose "
               "token it is to be"),
        Option("renewer-principal", PRINCIPAL, "with --create: who may renew it, as User:bob"),
        Option("max-life-time-period", MILLISECONDS, "with --create: how long it may live with "
               "renewals; -1: as long as the broker allows", kind=int),
        Option("renew-time-period", MILLISECONDS, "with --renew: how long it holds from now on; "
               "-1: the broker's usual time", kind=int),
        Option("expiry-time-period", MILLISECONDS, "with --expire: how long it holds from now on; "
               "-1: no longer", kind=int),
        Option("hmac", "[HMAC]", "what proves the token, as --create and --describe show it"),
    ],
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    action = given.one_of("create", "renew", "expire", "describe")
    check(given)
    return {"create": create, "renew": renew, "expire": expire, "describe": describe}[action](given)


def check(given: Given) -> None:
    """What an action needs, and what cannot stand beside it: as Kafka's tool has it."""
    needed = {
        "create": ("max-life-time-period",),
        "renew": ("hmac", "renew-time-period"),
        "expire": ("hmac", "expiry-time-period"),
    }
    for action, names in needed.items():
        if given.has(action):
            given.require(*names)
            for name in names:
                if given.value(name) is None:
                    PARSER.refuse(f"--{name} needs a value")
    given.exclude("create", ("hmac", "renew-time-period", "expiry-time-period"))
    others = ("max-life-time-period", "owner-principal")
    given.exclude("renew", ("renewer-principal", "expiry-time-period", *others))
    given.exclude("expire", ("renew-time-period", *others))
    given.exclude(
        "describe", ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period")
    )


def create(given: Given) -> int:
    renewers = principals(given, "renewer-principal")
    lifetime_ms = given.value("max-life-time-period")
    print(
        f"Calling create token operation with renewers :{listed(renewers)} , "
        f"max-life-time-period :{lifetime_ms}"
    )
    owners = principals(given, "owner-principal")
    with admin_of(given) as admin:
        token = admin.create_delegation_token(renewers, next(iter(owners), None), lifetime_ms)
    print(f"Created delegation token with tokenId : {token.token_id}")
    show([token])
    return 0


def renew(given: Given) -> int:
    proof, period_ms = given.value("hmac"), given.value("renew-time-period")
    print(f"Calling renew token operation with hmac :{proof} , renew-time-period :{period_ms}")
    with admin_of(given) as admin:
        expires_ms = admin.renew_delegation_token(proof, period_ms)
    print(f"Completed renew operation. New expiry date : {date(expires_ms)}", end="")
    return 0


def expire(given: Given) -> int:
    proof, period_ms = given.value("hmac"), given.value("expiry-time-period")
    print(f"Calling expire token operation with hmac :{proof} , expire-time-period :{period_ms}")
    with admin_of(given) as admin:
        expires_ms = admin.expire_delegation_token(proof, period_ms)
    print(f"Completed expire operation. New expiry date : {date(expires_ms)}", end="")
    return 0


def describe(given: Given) -> int:
    owners = principals(given, "owner-principal")
    if owners:
        print(f"Calling describe token operation for owners: {listed(owners)}")
    else:
        print("Calling describe token operation for current user.")
    with admin_of(given) as admin:
        found = admin.describe_delegation_tokens(owners or None)
    print(f"Total number of tokens : {len(found)}", end="")
    show(found)
    return 0


def principals(given: Given, name: str) -> list[str]:
    found = [each.strip() for each in given.values(name)]
    for each in found:
        kind, colon, who = each.partition(":")
        if not (kind and colon and who):
            PARSER.refuse("expected a string in format principalType:principalName but got " + each)
    return found


def listed(names: Iterable[str]) -> str:
    """As Java shows a list."""
    return f"[{', '.join(names)}]"


def show(tokens: Iterable[DelegationToken]) -> None:
    rows = [[name for name, _ in COLUMNS]]
    rows += [
        [
            each.token_id,
            each.password,
            each.owner,
            each.requester,
            listed(each.renewers),
            date(each.issue_timestamp),
            date(each.expiry_timestamp),
            date(each.max_timestamp),
        ]
        for each in tokens
    ]
    for row in rows:
        cells = zip(row, COLUMNS, strict=True)
        print("\n" + " ".join(f"{cell:<{width}}" for cell, (_, width) in cells))


def date(timestamp_ms: int) -> str:
    """By the local clock, to the minute."""
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(timestamp_ms / 1000))


main = entry(run)
