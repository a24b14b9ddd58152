"""InitProducerId without a transactional id."""

from __future__ import annotations

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

API = "InitProducerId"
PLAIN: Fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}


@case(API)
def new_ids(peer: Peer, version: int) -> None:
    peer.ask(API, version, PLAIN, "first")
    peer.ask(API, version, PLAIN, "second")
    for timeout in (0, -1, 2**31 - 1):
        peer.ask(API, version, PLAIN | {"transaction_timeout_ms": timeout}, f"timeout {timeout}")


@case(API, since=3)
def with_an_id_in_hand(peer: Peer, version: int) -> None:
    for producer, epoch in ((1, 0), (1, -1), (-1, 5), (9_000_000, 3), (-2, -2), (1, 32767)):
        fields = PLAIN | {"producer_id": producer, "producer_epoch": epoch}
        peer.ask(API, version, fields, f"id {producer} epoch {epoch}")


@case(API)
def empty_transactional_id(peer: Peer, version: int) -> None:
    peer.ask(API, version, {"transactional_id": "", "transaction_timeout_ms": 60_000})
