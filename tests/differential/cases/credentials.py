"""DescribeUserScramCredentials, AlterUserScramCredentials."""

from __future__ import annotations

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

DESCRIBE = "DescribeUserScramCredentials"
ALTER = "AlterUserScramCredentials"


def upsertion(name: str, mechanism: int = 2, iterations: int = 4096) -> Fields:
    fields: Fields = {"name": name, "mechanism": mechanism, "iterations": iterations}
    return {**fields, "salt": b"salt", "salted_password": b"password"}


def alteration(upsertions: list[Fields], *deletions: tuple[str, int]) -> Fields:
    gone: list[Fields] = [{"name": name, "mechanism": each} for name, each in deletions]
    return {"deletions": gone, "upsertions": upsertions}


@case(ALTER)
def credentials(peer: Peer, version: int) -> None:
    alice, bob = peer.name("alice"), peer.name("bob")
    both = [upsertion(alice), upsertion(bob, 1, 16_384)]
    peer.ask(ALTER, version, alteration(both), "set")
    peer.ask(ALTER, version, alteration([upsertion(alice, 1, 5000)]), "another mechanism")
    peer.settle()
    peer.ask(DESCRIBE, 0, {"users": [{"name": alice}, {"name": bob}]}, "described")
    peer.ask(ALTER, version, alteration([], (alice, 2), (bob, 1)), "deleted")
    peer.settle()
    peer.ask(DESCRIBE, 0, {"users": [{"name": alice}, {"name": bob}]}, "what is left")
    peer.ask(ALTER, version, alteration([], (alice, 2)), "deleted again")
    peer.ask(ALTER, version, alteration([]), "nothing")


@case(ALTER)
def credential_mistakes(peer: Peer, version: int) -> None:
    name = peer.name("user")
    for iterations in (-1, 0, 4095, 16_385):
        wanted = alteration([upsertion(name, iterations=iterations)])
        peer.ask(ALTER, version, wanted, f"{iterations} iterations")
    for mechanism in (0, 3, -1):
        peer.ask(ALTER, version, alteration([upsertion(name, mechanism)]), f"set {mechanism}")
        peer.ask(ALTER, version, alteration([], (name, mechanism)), f"delete {mechanism}")
    peer.ask(ALTER, version, alteration([upsertion("")]), "no name")
    peer.ask(ALTER, version, alteration([upsertion(name, 1), upsertion(name, 2)]), "twice")
    peer.ask(ALTER, version, alteration([upsertion(name)], (name, 2)), "set and deleted")
    other = alteration([upsertion(peer.name("x")), upsertion(name, 9)], (peer.name("y"), 1))
    peer.ask(ALTER, version, other, "one of three")


@case(DESCRIBE)
def describe_mistakes(peer: Peer, version: int) -> None:
    name = peer.name("never")
    peer.ask(DESCRIBE, version, {"users": [{"name": name}]}, "unknown")
    peer.ask(DESCRIBE, version, {"users": [{"name": name}, {"name": name}]}, "twice")
    peer.ask(DESCRIBE, version, {"users": [{"name": ""}]}, "no name")
