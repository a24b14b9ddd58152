"""A broker stopped at every single change of its disk while transactions run: prepare written,
markers half written, completion not written, and everything between.

The broker is whole, only its network is left out and its disk is simulated. Two producers, one of
each generation, run three transactions each over two partitions and a group's offset. Wherever the
stop falls, the next start must find every transaction whole or not at all, each as its producer was
told, and nothing that holds readers back for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.seams.simulated_disk import SimulatedDisk
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import read_header, read_records
from tests.broker.desk import Desk, fetch_request, produce_request, whole_batches

TOPIC, GROUP = "t", "group"
OUTCOMES = (True, False, True)
BUSY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
SETTINGS = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1000,
}


class PowerCut(Exception):
    """The machine has stopped."""


class StoppingDisk(SimulatedDisk):
    """Stops the machine at the n-th change: from then on nothing happens any more."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    @property
    def stopped(self) -> bool:
        return self.stop_at is not None and self.changes >= self.stop_at

    def _may_fail(self, operation: str, path: str) -> None:
        if operation in ("write", "sync", "rename", "unlink", "truncate"):
            self.changes += 1
            if self.stopped:
                raise OSError(5, "the machine has stopped")
        super()._may_fail(operation, path)


@dataclass
class Client:
    """A producer as a real client is one: of the classic generation, or of KIP-890's."""

    desk: Desk
    name: str
    bumps: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def ask(self, request: Any, version: int) -> Any:
        """The answer, if the machine lives to give it."""
        answer = self.desk.post(request, version)
        for _ in range(2000):
            if isinstance(self.desk.disk, StoppingDisk) and self.desk.disk.stopped:
                raise PowerCut
            if answer.ready:
                return answer.response
            self.desk.turn(1)
        raise AssertionError(f"no answer to {request}")

    def until(self, request: Any, version: int) -> Any:
        """Ask again while the coordinator is busy with what was before."""
        for _ in range(200):
            answer = self.ask(request, version)
            if answer.error_code not in BUSY:
                assert not answer.error_code, (request, ErrorCode(answer.error_code))
                return answer
            self.desk.advance(50)
        raise AssertionError(f"{request} is never answered")

    def begin(self) -> None:
        self.ask(FindCoordinatorRequest(coordinator_keys=[self.name], key_type=1), 4)
        self.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0), 4)
        granted = self.until(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4
        )
        self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch
        self.sequences.clear()

    def write(self, partition: int, value: bytes) -> None:
        if not self.bumps:
            added = self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
                    ],
                ),
                3,
            )
            [result] = added.results_by_topic_v3_and_below[0].results_by_partition
            assert result.partition_error_code == 0
        batch = self.desk.batch(
            value,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
        )
        request = produce_request(TOPIC, partition, batch)
        request.transactional_id = self.name
        response = self.ask(request, 12 if self.bumps else 9)
        [answer] = response.responses[0].partition_responses
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.sequences[partition] = self.sequences.get(partition, 0) + 1

    def commit_offset(self, offset: int) -> None:
        if not self.bumps:
            self.until(
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=GROUP,
                ),
                3,
            )
        response = self.ask(
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=GROUP,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=int(self.bumps), committed_offset=offset
                            )
                        ],
                    )
                ],
            ),
            5 if self.bumps else 3,
        )
        assert response.topics[0].partitions[0].error_code == 0

    def end(self, commit: bool) -> None:
        granted = self.until(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.bumps else 3,
        )
        if self.bumps:
            self.producer_id, self.epoch = granted.producer_id, granted.producer_epoch
            self.sequences.clear()


@dataclass
class Book:
    """What was asked for, and what was told, by client and number of transaction."""

    asked: dict[tuple[str, int], bool] = field(default_factory=dict)
    told: dict[tuple[str, int], bool] = field(default_factory=dict)


def clients(desk: Desk) -> list[Client]:
    return [Client(desk, "classic", False), Client(desk, "bumping", True)]


def run(desk: Desk, book: Book) -> None:
    """Both producers, in turn, until the machine stops."""
    both = clients(desk)
    for client in both:
        client.begin()
    for number, commit in enumerate(OUTCOMES):
        for client in both:
            key = (client.name, number)
            for partition in (0, 1):
                client.write(partition, b"%s %d" % (client.name.encode(), number))
            client.commit_offset(number + 1)
            book.asked[key] = commit
            client.end(commit)
            book.told[key] = commit


def started(disk: SimulatedDisk, flush: bool, clock: Any = None) -> Desk:
    return Desk(disk=disk, clock=clock, log_flush_before_ack=str(flush).lower(), **SETTINGS)


def visible(desk: Desk, partition: int) -> list[bytes]:
    """What a reader of committed records gets, filtered as clients filter."""
    found: list[bytes] = []
    offset = 0
    while True:
        request = fetch_request((TOPIC, partition, offset), isolation_level=1)
        [answer] = desk.ask(request, 11).responses[0].partitions
        assert answer.error_code == 0
        aborted = sorted(answer.aborted_transactions or [], key=lambda each: each.first_offset)
        found += committed_values(bytes(answer.records or b""), aborted)
        bounds = whole_batches(memoryview(bytes(answer.records or b"")))
        if not bounds:
            assert offset == answer.high_watermark == answer.last_stable_offset, "held back"
            return found
        data = bytes(answer.records)
        offset = read_header(data[bounds[-1][0] : bounds[-1][1]]).last_offset + 1


def committed_values(data: bytes, aborted: list[Any]) -> Iterator[bytes]:
    skipping: set[int] = set()
    left = list(aborted)
    for start, end in whole_batches(memoryview(data)):
        batch = data[start:end]
        header = read_header(batch)
        while left and left[0].first_offset <= header.last_offset:
            skipping.add(left.pop(0).producer_id)
        if header.control:
            skipping.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in skipping):
            yield from (bytes(record.value or b"") for record in read_records(batch))


def offset_of(desk: Desk, partition: int) -> int:
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
    answer = desk.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    [found] = answer.groups[0].topics[0].partitions
    assert found.error_code == 0, ErrorCode(found.error_code)
    return int(found.committed_offset)


def check(desk: Desk, book: Book) -> None:
    """Whole or not at all, as it was told; and it can go on."""
    for client in clients(desk):
        client.begin()  # aborts what was left open
    for partition in (0, 1):
        desk.partition(TOPIC, partition)  # opened when first asked for, and shown once synced
    desk.advance(20_000)
    seen = [visible(desk, partition) for partition in (0, 1)]
    for client in clients(desk):
        name = client.name.encode()
        numbers = [
            [int(value.split()[1]) for value in values if value.split()[0] == name]
            for values in seen
        ]
        assert numbers[0] == numbers[1] == sorted(set(numbers[0])), "torn, doubled or reordered"
        for number, commit in enumerate(OUTCOMES):
            key = (client.name, number)
            if key in book.told or not commit:
                assert (number in numbers[0]) == commit, (key, "is not as it was told")
            elif number in numbers[0]:
                assert book.asked.get(key), (key, "was never to be committed")
        last = max(numbers[0], default=-1) + 1
        assert offset_of(desk, int(client.bumps)) == (last or -1), "offsets go with the records"
    for client in clients(desk):
        client.begin()
        client.write(0, b"%s 9" % client.name.encode())
        client.end(commit=True)
    assert visible(desk, 0)[-2:] == [b"classic 9", b"bumping 9"]


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_a_stop_at_every_change_of_the_disk(cut: str) -> None:
    """Every transaction is whole or not at all, and as its producer was told."""
    flush = cut == "power"
    stops = 0
    while True:
        disk, book = StoppingDisk(), Book()
        desk = started(disk, flush)
        desk.create(TOPIC, 2)
        desk.settle()
        begun = disk.changes
        disk.stop_at = begun + 1 + stops * (3 if flush else 1)
        try:
            run(desk, book)
            done = True
        except PowerCut:
            done = False
        desk.kill()
        disk.stop_at = None
        if flush:
            disk.crash(stops)
        else:
            disk.kill()
        with started(disk, flush, desk.clock) as later:
            check(later, book)
        stops += 1
        if done:
            break
    assert stops > 30
