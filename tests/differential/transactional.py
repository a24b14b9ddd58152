"""Steps of transactions with a raw client, for the cases that compare two brokers."""

from __future__ import annotations

from tests.apache.batches import TRANSACTIONAL, batch
from tests.apache.messages import Fields
from tests.differential.peer import Peer

TIMEOUT_MS = 60_000
NOT_YET = (14, 15, 16, 51)
Ids = tuple[int, int]


def not_yet(code: int) -> bool:
    return code in NOT_YET


def find(peer: Peer, key: str, kind: int = 1) -> None:
    """Until the coordinator of `key` is there."""
    asked = {"coordinator_keys": [key], "key_type": kind}
    while peer.quietly("FindCoordinator", 4, asked)["coordinators"][0]["error_code"]:
        pass


def begin(peer: Peer, name: str) -> Ids:
    """A fresh producer under a transactional id."""
    find(peer, name)
    while True:
        answer = peer.quietly(
            "InitProducerId",
            4,
            {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS},
        )
        if not not_yet(answer["error_code"]):
            break
    # Known to both as the same drawn number from now on.
    peer.names.number("producer", answer["producer_id"])
    return answer["producer_id"], answer["producer_epoch"]


def init(name: str, **fields: int) -> Fields:
    return {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS} | fields


def added(name: str, ids: Ids, *topics: tuple[str, list[int]], version: int = 3) -> Fields:
    """The fields of AddPartitionsToTxn, single or batched."""
    listed = [{"name": topic, "partitions": indexes} for topic, indexes in topics]
    if version <= 3:
        return {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": ids[0],
            "v3_and_below_producer_epoch": ids[1],
            "v3_and_below_topics": listed,
        }
    return {
        "transactions": [
            {
                "transactional_id": name,
                "producer_id": ids[0],
                "producer_epoch": ids[1],
                "verify_only": False,
                "topics": listed,
            }
        ]
    }


def end(name: str, ids: Ids, commit: bool) -> Fields:
    return {
        "transactional_id": name,
        "producer_id": ids[0],
        "producer_epoch": ids[1],
        "committed": commit,
    }


def error_of_end(answer: Fields) -> bool:
    return not not_yet(answer.get("error_code", 0))


def error_of_adding(answer: Fields) -> bool:
    topics = answer.get("results_by_topic_v3_and_below") or [
        topic
        for each in answer.get("results_by_transaction", ())
        for topic in each["topic_results"]
    ]
    codes = [each["partition_error_code"] for t in topics for each in t["results_by_partition"]]
    return not any(map(not_yet, codes))


def add(peer: Peer, name: str, ids: Ids, topic: str, *indexes: int) -> None:
    """Join partitions to the transaction, without keeping the answer."""
    fields = added(name, ids, (topic, list(indexes or (0,))))
    while not error_of_adding(peer.quietly("AddPartitionsToTxn", 3, fields)):
        pass


def records(ids: Ids, sequence: int = 0, count: int = 1) -> bytes:
    return batch(
        count,
        attributes=TRANSACTIONAL,
        producer_id=ids[0],
        producer_epoch=ids[1],
        base_sequence=sequence,
    )


def produce(name: str | None, topic: str | bytes, data: bytes) -> Fields:
    place: Fields = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    place["partition_data"] = [{"index": 0, "records": data}]
    return {"transactional_id": name, "acks": -1, "timeout_ms": 5000, "topic_data": [place]}


def read(peer: Peer, topic: str, label: str, committed: bool = True) -> None:
    """What a reader sees, and how far it may."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    peer.ask_until(
        "Fetch",
        11,
        {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": int(committed),
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [part]}],
        },
        lambda answer: True,
        label,
    )


def describe(peer: Peer, name: str, label: str, *states: str) -> None:
    """The coordinator's view, once it has reached one of these states."""
    peer.ask_until(
        "DescribeTransactions",
        0,
        {"transactional_ids": [name]},
        lambda answer: not states or answer["transaction_states"][0]["transaction_state"] in states,
        label,
    )


def bumped(answer: Fields, ids: Ids) -> Ids:
    """How the producer goes on after an end: from version 5 on the response says so."""
    if answer.get("producer_id", -1) < 0 or answer["error_code"]:
        return ids
    return answer["producer_id"], answer["producer_epoch"]
