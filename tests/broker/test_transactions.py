"""Transactions through the dispatcher of a whole broker: what the single decisions cannot show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.dispatch import Pending
from ottla.cluster.requests import FeatureUpdate, UpgradeType
from ottla.coordinator import coordinator_partition
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import read_records
from tests.broker.harness import BrokerHarness, produce_request, whole_batches
from tests.broker.transactional import TOPIC, Client, offset_of, visible

SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000,
}


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness(**SETTINGS) as harness:
        harness.create(TOPIC, 2)
        yield harness


def client_of(harness: BrokerHarness, name: str = "id", *, bumps: bool = False) -> Client:
    client = Client(harness, name, bumps)
    client.begin()
    return client


def batch_of(client: Client, sequence: int = 0, value: bytes = b"x") -> bytes:
    return client.harness.batch(
        value,
        transactional=True,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        base_sequence=sequence,
    )


def request_of(client: Client, sequence: int = 0, partition: int = 0) -> ProduceRequest:
    request = produce_request(TOPIC, partition, batch_of(client, sequence))
    request.transactional_id = client.name
    return request


def produced(client: Client, version: int, sequence: int = 0) -> ErrorCode:
    response = client.ask(request_of(client, sequence), version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def state_of(harness: BrokerHarness, name: str = "id") -> Any:
    answer = harness.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    return answer.transaction_states[0]


# ---- KIP-890 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_write_that_was_not_announced_is_refused(
    harness: BrokerHarness, version: int, error: ErrorCode
) -> None:
    """It would hang: the coordinator would never send this partition a marker."""
    client = client_of(harness)
    assert produced(client, version) == error
    assert harness.partition(TOPIC).log.end_offset == 0


def test_verification_can_be_switched_off(harness: BrokerHarness) -> None:
    """transaction.partition.verification.enable=false lets a classic client write at once."""
    with BrokerHarness(transaction_partition_verification_enable="false", **SETTINGS) as lax:
        lax.create(TOPIC, 2)
        assert produced(client_of(lax), 11) == ErrorCode.NONE


def test_a_client_of_the_second_generation_adds_by_writing(harness: BrokerHarness) -> None:
    """Produce version 12 makes the partition part of the transaction."""
    client = client_of(harness, bumps=True)
    assert produced(client, 12) == ErrorCode.NONE
    state = state_of(harness)
    assert state.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [(TOPIC, [0])]


@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_write_never_falls_into_the_next_transaction(
    harness: BrokerHarness, commit: bool
) -> None:
    """After the end the epoch is another one: what was under way is fenced, also in its retries."""
    client = client_of(harness, bumps=True)
    client.write(0, b"in time")
    late = request_of(client, 1)
    client.end(commit)
    for _ in range(2):
        response = client.ask(late, 12)
        error = response.responses[0].partition_responses[0].error_code
        assert error == ErrorCode.INVALID_PRODUCER_EPOCH
        client.write(0, b"in the next")
    client.end(commit=True)
    assert visible(harness, 0) == ([b"in time"] if commit else []) + [b"in the next"] * 2


def test_a_gap_at_the_beginning_is_noticed(harness: BrokerHarness) -> None:
    """The first batch was lost on the way: the second must not take its place."""
    client = client_of(harness, bumps=True)
    assert produced(client, 12, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(client, 12, sequence=0) == ErrorCode.NONE


def test_what_was_verified_before_an_end_is_worth_nothing_after_it() -> None:
    """The answer to a verification is on its way while the transaction ends (the ABA of KIP-890).

    With log.flush.before.ack an answer waits for the disk, so that there is a "while".
    """
    with BrokerHarness(log_flush_before_ack="true", **SETTINGS) as harness:
        harness.create(TOPIC, 2)
        client = client_of(harness)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=client.name,
            v3_and_below_producer_id=client.producer_id,
            v3_and_below_producer_epoch=client.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        end = EndTxnRequest(
            transactional_id=client.name,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            committed=False,
        )
        client.ask(added, 3)
        verification = harness.broker.coordinators.verification
        asked: list[Any] = []
        ask = verification.ask
        verification.ask = lambda *arguments: asked.append(arguments)  # type: ignore[method-assign]
        write = harness.post(request_of(client), 9)
        verification.ask = ask  # type: ignore[method-assign]
        assert not write.ready
        client.ask(end, 3)
        harness.settle()
        # The stale answer: the partition was part of the transaction when it was asked.
        [(_, _, places, _, then)] = asked
        then(dict.fromkeys(places, ErrorCode.NONE))
        harness.settle()
        [answer] = write.response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert visible(harness, 0) == []


def test_what_is_behind_a_first_write_waits_for_it(harness: BrokerHarness) -> None:
    """A connection's second batch must not overtake the first, which the coordinator is asked
    about.
    """
    client = client_of(harness, bumps=True)
    first = harness.post(request_of(client, 0), 12)
    assert isinstance(first.pending, Pending)
    assert first.pending.exclusive


def test_two_producers_in_one_request_are_refused(harness: BrokerHarness) -> None:
    """A request belongs to one transaction."""
    one, two = client_of(harness, "one"), client_of(harness, "two")
    request = request_of(one)
    request.topic_data += request_of(two, partition=1).topic_data
    response = one.ask(request, 9)
    errors = {p.error_code for topic in response.responses for p in topic.partition_responses}
    assert errors == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# ---- zombies ---------------------------------------------------------------------------------


def asked_by(client: Client) -> dict[str, Callable[[], Any]]:
    """Everything a producer may ask when it wakes up; each returns the response's error code."""
    ids: dict[str, Any] = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    bumps = client.bumps

    def added(api_version: int) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=client.name,
            v3_and_below_producer_id=client.producer_id,
            v3_and_below_producer_epoch=client.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[1])],
        )
        [topic] = client.ask(request, api_version).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def add_offsets(api_version: int) -> int:
        request = AddOffsetsToTxnRequest(transactional_id=client.name, group_id="group", **ids)
        return int(client.ask(request, api_version).error_code)

    def end(commit: bool, api_version: int) -> int:
        request = EndTxnRequest(transactional_id=client.name, committed=commit, **ids)
        return int(client.ask(request, api_version).error_code)

    def go_on() -> int:
        request = InitProducerIdRequest(
            transactional_id=client.name, transaction_timeout_ms=1000, **ids
        )
        return int(client.ask(request, 4).error_code)

    def offsets() -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=99)
        topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        request = TxnOffsetCommitRequest(
            transactional_id=client.name, group_id="group", topics=topics, **ids
        )
        response = client.ask(request, 5 if bumps else 3)
        return int(response.topics[0].partitions[0].error_code)

    return {
        "write where it wrote": lambda: produced(client, 12 if bumps else 9, 1),
        "write elsewhere": lambda: first_error(
            client.ask(request_of(client, partition=1), 12 if bumps else 9)
        ),
        "add": lambda: added(3),
        "add, of old": lambda: added(1),
        "add offsets": lambda: add_offsets(3),
        "add offsets, of old": lambda: add_offsets(1),
        "commit offsets": offsets,
        "commit": lambda: end(True, 5 if bumps else 3),
        "commit, of old": lambda: end(True, 1),
        "abort": lambda: end(False, 5 if bumps else 3),
        "go on": go_on,
    }


def first_error(response: Any) -> int:
    return int(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("successor", ["idle", "open", "done"])
def test_a_zombie_gets_nowhere(harness: BrokerHarness, bumps: bool, successor: str) -> None:
    """Whatever it asks, and whatever its successor is doing: it is fenced.

    Produce says INVALID_PRODUCER_EPOCH, the others PRODUCER_FENCED, to those who know it.
    """
    zombie = client_of(harness, bumps=bumps)
    zombie.write(0, b"of the zombie")
    fresh = client_of(harness, bumps=bumps)
    if successor != "idle":
        fresh.write(0, b"fresh")
    if successor == "done":
        fresh.end(commit=True)
    of_old = ErrorCode.INVALID_PRODUCER_EPOCH
    for what, ask in asked_by(zombie).items():
        error = ask()
        old = what.endswith("of old") or what.startswith("write") or what == "commit offsets"
        assert error == (of_old if old else ErrorCode.PRODUCER_FENCED), (what, ErrorCode(error))
    if successor != "done":
        fresh.write(1, b"fresh")
        fresh.end(commit=True)
    assert visible(harness, 0) == ([] if successor == "idle" else [b"fresh"])
    assert offset_of(harness, 0) == -1


# ---- markers ---------------------------------------------------------------------------------


def test_a_marker_that_cannot_be_written_is_tried_again(harness: BrokerHarness) -> None:
    """The partition has no leader for a while: the transaction stays prepared, then completes."""
    client = client_of(harness)
    client.write(0, b"0")
    client.write(1, b"1")
    partition = harness.partition(TOPIC, 1)
    partition.is_leader = False
    client.end(commit=True)
    assert state_of(harness).transaction_state == "PrepareCommit"
    begin = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000)
    assert client.ask(begin, 4).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.advance(3000)
    assert state_of(harness).transaction_state == "PrepareCommit"
    partition.is_leader = True
    harness.advance(6000)
    assert state_of(harness).transaction_state == "CompleteCommit"
    assert (visible(harness, 0), visible(harness, 1)) == ([b"0"], [b"1"])
    ends = [part.log.end_offset for part in (harness.partition(TOPIC, 0), partition)]
    assert ends == [2, 2], "a marker that was written is not written again"


@pytest.mark.parametrize("flush", ["false", "true"])
def test_a_transaction_over_many_partitions(flush: str) -> None:
    """Each gets one marker, though only a few are written in one turn of the loop."""
    count = 230
    with BrokerHarness(log_flush_before_ack=flush, **SETTINGS) as harness:
        harness.create("wide", count)
        client = client_of(harness)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=client.name,
            v3_and_below_producer_id=client.producer_id,
            v3_and_below_producer_epoch=client.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name="wide", partitions=list(range(count)))
            ],
        )
        client.ask(added, 3)
        client.end(commit=True)
        steps = 0
        while state_of(harness).transaction_state != "CompleteCommit":
            assert harness.simulation.step()
            steps += 1
            assert steps < 1000
        harness.settle()
        ends = {harness.partition("wide", index).log.end_offset for index in range(count)}
        assert ends == {1}


@pytest.mark.parametrize("flush", ["false", "true"])
def test_ended_transactions_are_not_remembered_for_ever(flush: str) -> None:
    """Also where nobody reads: the partition keeps what is open, and the last one at most."""
    with BrokerHarness(log_flush_before_ack=flush, **SETTINGS) as harness:
        harness.create(TOPIC, 2)
        client = client_of(harness, bumps=True)
        for number in range(20):
            client.write(0, b"x")
            client.end(commit=number % 2 == 0)
        assert len(harness.partition(TOPIC).log.producers.completed) <= 1


def test_markers_are_sent_however_busy_the_coordinator_is(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New requests are put off when too many answers wait; what was decided is carried out."""
    client = client_of(harness)
    client.write(0, b"x")
    waiting = harness.post(
        EndTxnRequest(
            transactional_id=client.name,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            committed=True,
        ),
        3,
    )
    monkeypatch.setattr(coordinator_partition, "REPLIES_WAITING_MAX", 0)
    harness.settle()
    assert waiting.response.error_code == 0
    assert produced(client, 9, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.undo()
    assert state_of(harness).transaction_state == "CompleteCommit"


def test_a_producer_that_is_only_slow_waits_for_the_end_before(harness: BrokerHarness) -> None:
    """While the last end is being carried out, the broker itself tries again for a client."""
    client = client_of(harness, bumps=True)
    client.write(0, b"0")
    partition = harness.partition(TOPIC, 0)
    partition.is_leader = False
    client.end(commit=True)
    partition.is_leader = True
    waiting = harness.post(request_of(client, partition=1), 12)
    harness.settle()
    assert not waiting.ready
    for _ in range(20):
        harness.advance(20)
    [answer] = waiting.response.responses[0].partition_responses
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.advance(1000)
    assert produced(client, 12) == ErrorCode.NONE


def test_a_transaction_nobody_ends_is_aborted(harness: BrokerHarness) -> None:
    """After its timeout, and its producer is fenced."""
    client = client_of(harness)
    client.write(0, b"0")
    harness.advance(59_000)
    assert state_of(harness).transaction_state == "Ongoing"
    harness.advance(3000)
    assert state_of(harness).transaction_state == "CompleteAbort"
    assert visible(harness, 0) == []
    assert produced(client, 9, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_ids_are_fetched_when_they_run_out(harness: BrokerHarness) -> None:
    """Each name gets an id of its own, also across blocks of ids."""
    block = list(harness.broker.producer_ids._block)
    assert len(block) < 5000
    seen = {client_of(harness, f"id-{number}").producer_id for number in range(5)}
    harness.broker.producer_ids._block = range(0)
    seen |= {client_of(harness, f"more-{number}").producer_id for number in range(5)}
    assert len(seen) == 10


def test_an_administrator_can_end_what_hangs(harness: BrokerHarness) -> None:
    """WriteTxnMarkers aborts in one partition what no coordinator knows of."""
    with BrokerHarness(transaction_partition_verification_enable="false", **SETTINGS) as lax:
        lax.create(TOPIC, 1)
        client = client_of(lax)
        assert produced(client, 9) == ErrorCode.NONE
        described = lax.ask(
            DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])]), 0
        )
        [hanging] = described.topics[0].partitions[0].active_producers
        assert (hanging.current_txn_start_offset, hanging.coordinator_epoch) == (0, -1)
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            coordinator_epoch=-1,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
        )
        answer = lax.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        assert visible(lax, 0) == []


@pytest.mark.parametrize("level", [0, 1])
def test_an_older_transaction_version(harness: BrokerHarness, level: int) -> None:
    """The cluster agrees on an older generation: its records are written in that form, a fence
    then is a bump of one as before, and clients of both generations are served on.
    """
    update = FeatureUpdate("transaction.version", level, UpgradeType.SAFE_DOWNGRADE)
    outcome = harness.run(harness.broker.controller.update_features([update]))
    assert not outcome.error_code, outcome
    harness.settle()
    for bumps in (False, True):
        client = client_of(harness, f"id-{bumps}", bumps=bumps)
        client.write(0, b"x")
        client.end(commit=True)
        client.write(0, b"left open")
        fresh = client_of(harness, f"id-{bumps}", bumps=bumps)
        assert fresh.epoch == client.epoch + 2
    partition = harness.partition("__transaction_state")
    found = partition.log.read(0, bytes_max=1 << 20, end_offset=1 << 40, first_batch_whole=True)
    assert found is not None
    data = found.file.pread(found.size, found.position)
    versions = {
        int.from_bytes(bytes(record.value or b"")[:2], "big")
        for start, end in whole_batches(memoryview(data))
        for record in read_records(data[start:end])
    }
    assert versions == {min(level, 1)}
    assert visible(harness, 0) == [b"x", b"x"]


def test_lists_show_what_is_there(harness: BrokerHarness) -> None:
    """Every name with its state; filters narrow it."""
    client_of(harness, "empty")
    client_of(harness, "open").write(0, b"x")
    done = client_of(harness, "done")
    done.write(1, b"x")
    done.end(commit=True)

    def names(version: int = 2, **filters: Any) -> set[str]:
        answer = harness.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    assert names() == {"empty", "open", "done"}
    assert names(state_filters=["Ongoing", "Empty"]) == {"empty", "open"}
    assert names(producer_id_filters=[done.producer_id]) == {"done"}
    assert names(transactional_id_pattern=".*e.*") == {"empty", "open", "done"}
    assert names(transactional_id_pattern="o.*") == {"open"}
    harness.advance(5000)
    assert "open" in names(duration_filter=4000)
    assert "open" not in names(duration_filter=60_000)
