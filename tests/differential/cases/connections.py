"""One connection, many requests: answers come in the order of the questions, whatever waits."""

from __future__ import annotations

import time

from tests.apache.batches import batch
from tests.apache.client import TIMEOUT_S, RawClient
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.cases import fetch
from tests.differential.peer import Peer

# Longer than a client waits for an answer: one that arrives was sent for an event, not at the end.
LONG_WAIT_MS = int(TIMEOUT_S * 1000) * 10


def order_of(peer: Peer, requests: list[tuple[str, int, Fields]]) -> list[int]:
    """Send all in one piece; the correlation ids as they come back, counted from the first."""
    frames = [peer.client.frame(*each) for each in requests]
    first = int.from_bytes(frames[0][8:12], "big")
    peer.client.send_bytes(b"".join(frames))
    return [
        int.from_bytes(peer.client.receive_frame()[:4], "big") - first for _ in range(len(requests))
    ]


@case("Fetch")
def answers_in_order(peer: Peer, version: int) -> None:
    topic = fetch.filled(peer)
    at_end = fetch.topic_of(peer, version, topic, fetch.part(7))
    waits = fetch.request(version, at_end, max_wait_ms=150, min_bytes=1)
    here = fetch.request(version, fetch.topic_of(peer, version, topic, fetch.part(0)))
    peer.note("order", order_of(peer, [
        ("Fetch", version, waits),
        ("ApiVersions", 0, {}),
        ("Fetch", version, here),
        ("Metadata", 1, {"topics": []}),
    ]))  # fmt: skip


@case("Produce")
def answers_in_order_of_writes(peer: Peer, version: int) -> None:
    from tests.differential.cases.produce import fetched, one

    topic = peer.create_topic()
    wrong = one(peer, version, topic, batch(1, crc_xor=1))
    requests: list[tuple[str, int, Fields]] = []
    for number in range(5):
        records = batch(number + 1)
        requests.append(("Produce", version, one(peer, version, topic, records, acks=-1)))
        requests.append(("Produce", version, wrong))
    peer.note("order", order_of(peer, requests))
    fetched(peer, topic)


@case("CreateTopics")
def effects_in_order(peer: Peer, version: int) -> None:
    """A request behind another sees what that one has done."""
    name = peer.name("made")
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    fields: Fields = {"topics": [topic], "timeout_ms": 5000}
    peer.client.send_bytes(
        peer.client.frame("CreateTopics", version, fields)
        + peer.client.frame("CreateTopics", version, fields)
    )
    answers = [peer.client.receive("CreateTopics", version) for _ in range(2)]
    peer.note("codes", [each["topics"][0]["error_code"] for each in answers])


@case("ApiVersions", only=(0,))
def frames_in_pieces(peer: Peer, version: int) -> None:
    frame = peer.client.frame("ApiVersions", version, {})
    for byte in frame:
        peer.client.send_bytes(bytes((byte,)))
    peer.note("byte by byte", bool(peer.client.receive("ApiVersions", version)["api_keys"]))
    double = peer.client.frame("ApiVersions", version, {}) * 2
    peer.client.send_bytes(double[:-3])
    peer.note("the first of two", len(peer.client.receive_frame()) > 4)
    peer.client.send_bytes(double[-3:])
    peer.note("the second of two", len(peer.client.receive_frame()) > 4)
    peer.client.send_bytes(frame[:7])
    peer.reconnect()
    peer.ask("ApiVersions", version, {}, "after a broken-off frame")


@case("Fetch")
def woken_by_a_write(peer: Peer, version: int) -> None:
    """A waiting fetch is answered as soon as another connection has written enough."""
    topic = fetch.filled(peer)
    at_end = fetch.topic_of(peer, version, topic, fetch.part(7))
    waits = fetch.request(version, at_end, max_wait_ms=LONG_WAIT_MS, min_bytes=100)
    waiting = RawClient(peer.port)
    waiting.send("Fetch", version, waits)
    peer.produce(topic, batch(1))
    peer.produce(topic, batch(1))
    answer = waiting.receive("Fetch", version)
    waiting.close()
    # Kafka takes the watermark before the records: a write between them is in these alone.
    data = answer["responses"][0]["partitions"][0]
    for name in ("high_watermark", "last_stable_offset"):
        if data.get(name) == 8:
            data[name] = 9
    peer.keep("the answer", "Fetch", answer)


@case("Fetch")
def waits_out_its_time(peer: Peer, version: int) -> None:
    """Less than `min_bytes` is answered when the time is over, with what there is."""
    topic = fetch.filled(peer)
    at_end = fetch.topic_of(peer, version, topic, fetch.part(7))
    waiting = RawClient(peer.port)
    began = time.monotonic()
    waiting.send("Fetch", version, fetch.request(version, at_end, max_wait_ms=150, min_bytes=5000))
    peer.produce(topic, batch(1))
    answer = waiting.receive("Fetch", version)
    waiting.close()
    peer.note("not before", time.monotonic() - began > 0.14)
    peer.keep("the answer", "Fetch", answer)


@case("Fetch")
def deleted_while_waiting(peer: Peer, version: int) -> None:
    """A topic that goes ends the wait for it."""
    topic = fetch.filled(peer)
    at_end = fetch.topic_of(peer, version, topic, fetch.part(7))
    waiting = RawClient(peer.port)
    waiting.send(
        "Fetch", version, fetch.request(version, at_end, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
    )
    peer.quietly("DeleteTopics", 5, {"topic_names": [topic], "timeout_ms": 5000})
    answer = waiting.receive("Fetch", version)
    waiting.close()
    data = answer["responses"][0]["partitions"][0]
    peer.note("the answer", [data[name] for name in ("error_code", "high_watermark", "records")])
