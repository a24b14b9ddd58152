"""ApiVersions: the versions that are served, for clients of every age."""

from __future__ import annotations

from tests.apache.client import request_header
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

API = "ApiVersions"
CLIENT: Fields = {"client_software_name": "suite", "client_software_version": "1.0"}


@case(API)
def good(peer: Peer, version: int) -> None:
    peer.ask(API, version, CLIENT)
    peer.ask(API, version, CLIENT, "again")


@case(API, since=3)
def odd_software_names(peer: Peer, version: int) -> None:
    for name in ("", "a b", "-a", "a-", "a.b-c", "a" * 300, "ä", "a/b", "."):
        peer.ask(API, version, CLIENT | {"client_software_name": name}, f"name {name!r}")
        peer.ask(API, version, CLIENT | {"client_software_version": name}, f"version {name!r}")


@case(API, since=3)
def unknown_tags(peer: Peer, version: int) -> None:
    peer.ask(API, version, CLIENT | {"tags": {7: b"later", 9: b""}})


@case(API, only=(0,))
def versions_nobody_has(peer: Peer, version: int) -> None:
    for other in (5, 6, 100, 32767, -1, -32768):
        peer.ask(API, other, CLIENT, "unknown version")
        peer.ask(API, version, CLIENT, "the connection goes on")


@case(API, only=(3,))
def body_missing(peer: Peer, version: int) -> None:
    peer.ask(API, version, b"", "no body")
    peer.ask(API, version, b"\x05ab", "cut short")
    peer.ask(API, version, b"\x02a\x02b\x00trailing", "too long")


@case(API, only=(0,))
def client_ids(peer: Peer, version: int) -> None:
    for client_id in (None, "", "x" * 1000):
        head = request_header(18, version, 77, flexible=False, client_id=client_id)
        peer.client.send_bytes(len(head).to_bytes(4, "big") + head)
        assert peer.client.receive_frame()[:4] == (77).to_bytes(4, "big")
    peer.ask(API, version, {}, "after odd client ids")
