"""Every API alike: wrong versions, cut and trailing bodies, wrong counts, unknown tags, garbage."""

from __future__ import annotations

import struct

from tests.apache import messages
from tests.apache.client import request_header
from tests.differential.case import case
from tests.differential.peer import Peer

APIS = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeLogDirs",
    "CreatePartitions",
    "IncrementalAlterConfigs",
    "UpdateFeatures",
    "DescribeCluster",
    "DescribeProducers",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ElectLeaders",
)
# Nothing in such a body makes a broker act: all arrays are empty, all names too.
HARMLESS: dict[str, dict[str, object]] = {
    "InitProducerId": {"transactional_id": "", "transaction_timeout_ms": 1000},
    "Produce": {"acks": 1},
    "Fetch": {"max_wait_ms": 0, "session_epoch": -1},
    "ListOffsets": {"replica_id": -1},
    "DescribeTopicPartitions": {"response_partition_limit": 10},
}


def frame(peer: Peer, api: str, version: int, body: bytes) -> bytes:
    """A frame whose header is flexible where the nearest stable version is."""
    fact = messages.facts()[f"{api}Request"]
    flexible = fact.flexible(min(max(version, fact.lowest), fact.highest))
    head = request_header(fact.key, version, peer.client.next_correlation_id(), flexible=flexible)
    return struct.pack(">i", len(head) + len(body)) + head + body


def body_of(api: str, version: int) -> bytes:
    return messages.encode(f"{api}Request", version, dict(HARMLESS.get(api, {})))


def _every_api() -> None:
    for api in APIS:
        _register(api)


def _register(api: str) -> None:
    lowest, highest = messages.versions(api)[0], messages.versions(api)[-1]

    @case(api)
    def nothing_asked(peer: Peer, version: int) -> None:
        peer.ask(api, version, dict(HARMLESS.get(api, {})))

    @case(api, only=(highest,))
    def versions_nobody_has(peer: Peer, version: int) -> None:
        for other in {lowest - 1, highest + 1, 99, -1, 0} - set(range(lowest, highest + 1)):
            near = min(max(other, lowest), highest)
            peer.send_bytes(frame(peer, api, other, body_of(api, near)), f"version {other}")

    @case(api)
    def cut_short(peer: Peer, version: int) -> None:
        body = body_of(api, version)
        for size in sorted({0, len(body) // 2, len(body) - 1} - {len(body)}):
            if size >= 0:
                peer.send_bytes(frame(peer, api, version, body[:size]), f"{size} of {len(body)}")

    @case(api)
    def too_long(peer: Peer, version: int) -> None:
        peer.ask(api, version, body_of(api, version) + b"\x00\x00\x00", "trailing zeros")
        peer.ask(api, version, body_of(api, version) + b"garbage", "trailing garbage")

    if messages.facts()[f"{api}Request"].flexible(highest):

        @case(api, since=messages.facts()[f"{api}Request"].flexible_from)
        def unknown_tags(peer: Peer, version: int) -> None:
            fields = dict(HARMLESS.get(api, {})) | {"tags": {40: b"later", 1000: b""}}
            peer.ask(api, version, fields)


_every_api()


@case("ApiVersions", only=(0,))
def unknown_api_keys(peer: Peer, version: int) -> None:
    for key in (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 93, 99, 1000, 32767, -1, -32768):
        head = request_header(key, version, 5, flexible=False)
        peer.send_bytes(struct.pack(">i", len(head)) + head, f"key {key}")


@case("ApiVersions", only=(0,))
def broken_frames(peer: Peer, version: int) -> None:
    peer.send_bytes(struct.pack(">i", 0), "an empty frame")
    peer.send_bytes(struct.pack(">i", -1), "a negative size")
    peer.send_bytes(struct.pack(">i", 104_857_601), "one byte over socket.request.max.bytes")
    peer.send_bytes(struct.pack(">i", 2**31 - 1), "the largest size")
    peer.send_bytes(struct.pack(">i", 3) + b"abc", "shorter than a header")
    peer.send_bytes(struct.pack(">ihhi", 8, 18, version, 1), "a header without client id")
    peer.send_bytes(struct.pack(">ihhih", 10, 18, version, 1, 5), "a client id cut short")
    peer.send_bytes(struct.pack(">ihhih", 10, 18, version, 1, -2), "a client id of length -2")
    peer.send_bytes(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "another protocol")
    peer.send_bytes(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(200), "TLS")
    peer.ask("ApiVersions", version, {}, "the broker goes on")
