"""What trips up those who re-implement Kafka: the traps that concern replication, by number.

25, 28, 29 and 31 are in `test_acknowledgements.py` too. Those that need coordinators are in
`tests/broker/test_cluster_traps.py`, and in `test_cluster_transactions.py` there.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.control import ABORT, COMMIT, write_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, read_header, read_records, write_batch
from tests.broker.harness import fetch_request, whole_batches
from tests.replica.brokers import TOPIC, Brokers, error_of
from tests.replica.test_divergence import agree

TRANSACTIONAL: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}


def append(brokers: Brokers, leader: int, batch: bytes, *, marker: bool = False) -> None:
    """Append a batch at the leader, and wait until it is committed."""
    partition = brokers.at(leader)
    now_ms = brokers.nodes[leader].clock.now_ms()

    async def inside_the_loop() -> None:
        records = memoryview(bytearray(batch))
        if marker:
            result = partition.append_as_coordinator(records, now_ms=now_ms)
        else:
            result = partition.append(records, acks=-1, now_ms=now_ms)
        assert result.error_code == 0

    brokers.nodes[leader].run(inside_the_loop())
    end = partition.end_offset
    brokers.run_until(lambda: partition.high_watermark == end)


def write(brokers: Brokers, leader: int, value: bytes, sequence: int) -> None:
    """Write a record of a transaction that has been verified."""
    record = Record(value, timestamp=brokers.nodes[leader].clock.now_ms())
    append(brokers, leader, write_batch([record], base_sequence=sequence, **TRANSACTIONAL))


def end_transaction(brokers: Brokers, leader: int, kind: int) -> None:
    """Write a marker at the leader, as a coordinator does."""
    now_ms = brokers.nodes[leader].clock.now_ms()
    marker = write_marker(
        kind, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=now_ms
    )
    append(brokers, leader, marker, marker=True)


def committed(brokers: Brokers, leader: int) -> list[bytes]:
    """What a read_committed consumer keeps of what it gets, as KIP-98 has it."""
    request = fetch_request((TOPIC, 0, 0), isolation_level=1)
    data = brokers.ask(leader, request, 11).responses[0].partitions[0]
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions)
    view = memoryview(bytes(data.records or b""))
    leave_out: set[int] = set()
    found = []
    for start, end in whole_batches(view):
        header = read_header(view[start:end])
        while aborted and aborted[0][0] <= header.last_offset:
            leave_out.add(aborted.pop(0)[1])
        if header.is_control:
            leave_out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in leave_out):
            found += [bytes(each.value or b"") for each in read_records(view[start:end])]
    return found


def test_trap_26_aborted_records_stay_aborted_after_a_leader_change() -> None:
    """The next leader has the marker, the index of aborted transactions and the open ones."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        write(brokers, 1, b"aborted 1", 0)
        end_transaction(brokers, 1, ABORT)
        write(brokers, 1, b"aborted 2", 1)
        brokers.run(1)
        brokers.crash(1)
        brokers.lead(2, isr=(2, 3))
        brokers.run_until(lambda: brokers.at(2).high_watermark == brokers.at(2).end_offset)
        assert committed(brokers, 2) == []
        end_transaction(brokers, 2, ABORT)
        brokers.produced(2, b"plain")
        assert committed(brokers, 2) == [b"plain"]


def test_trap_28_an_isr_of_the_leader_alone_takes_no_acknowledged_write() -> None:
    """With min.insync.replicas=2: nothing acknowledged is on one replica only."""
    with Brokers(3, min_insync_replicas=2, replica_lag_time_max_ms=1000) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"acknowledged")
        brokers.crash(2)
        brokers.crash(3)
        waiting = brokers.produce(1, b"not acknowledged", timeout_ms=3000)
        brokers.run_until(lambda: brokers.script.state(0).isr == (1,))
        refused = brokers.produce(1, b"refused")
        assert error_of(refused) == ErrorCode.NOT_ENOUGH_REPLICAS
        brokers.run_until(lambda: waiting.ready)
        assert error_of(waiting) == ErrorCode.REQUEST_TIMED_OUT
        assert brokers.read(1) == [b"acknowledged"]


def test_trap_29_one_offset_has_one_value_for_all_readers() -> None:
    """A leader that is cut off shows nothing that its successor may replace."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        brokers.produced(1, b"first")
        brokers.run(1)
        brokers.cut(1)
        brokers.script.feed_s[1] = 30
        brokers.produce(1, b"only at the old leader", acks=1)
        brokers.script.decide(0, leader=2, isr=(2, 3))
        brokers.run_until(lambda: brokers.at(2).is_leader and brokers.at(3).leader_id == 2)
        brokers.produced(2, b"second")
        assert brokers.at(1).is_leader
        assert brokers.read(1) == [b"first"]
        assert brokers.read(2) == [b"first", b"second"]


def test_trap_31_no_record_is_seen_before_its_transaction_commits() -> None:
    """Whoever leads: an open transaction bounds what a read_committed reader gets."""
    with Brokers(3) as brokers:
        brokers.lead(1)
        write(brokers, 1, b"one", 0)
        for leader in (2, 3, 1):
            brokers.run(1)
            brokers.lead(leader)
            brokers.run_until(
                lambda leader=leader: brokers.at(leader).high_watermark == 1  # type: ignore[misc]
            )
            assert committed(brokers, leader) == []
        end_transaction(brokers, 1, COMMIT)
        assert committed(brokers, 1) == [b"one"]


def test_trap_32_power_cuts_one_after_the_other_lose_nothing() -> None:
    """Each replica loses its un-synced bytes, is out of the ISR until it has them again, and then
    the next one does."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        for number in range(20):
            brokers.produced(1, b"%d" % number)
        for each in (1, 2, 3):
            others = tuple(sorted({1, 2, 3} - {each}))
            brokers.crash(each, power=True)
            brokers.lead(others[0], isr=others)
            brokers.start(each)
            brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))
        leader = brokers.script.state(0).leader
        assert brokers.read(leader) == [b"%d" % number for number in range(20)]
        assert agree(brokers)


@pytest.mark.parametrize("bit", [8 * 20, 8 * 70, 8 * 200])
def test_trap_32_a_flipped_bit_on_one_replica_is_not_served(bit: int) -> None:
    """After a crash the check of the un-synced part finds it, the leader's records replace it, and
    the replica can lead."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        brokers.lead(1)
        for number in range(10):
            brokers.produced(1, b"%d" % number)
        brokers.run(1)
        path = brokers.at(3).log.active.path(".log")
        brokers.crash(3)
        brokers.script.decide(0, isr=(1, 2))
        brokers.nodes[3].disk.flip_bit(path, bit)
        brokers.start(3)
        brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))
        brokers.lead(3)
        brokers.run_until(lambda: brokers.at(3).high_watermark == 10)
        assert brokers.read(3) == [b"%d" % number for number in range(10)]


def test_trap_32_a_bit_that_flips_on_the_way_is_not_stored() -> None:
    """A follower checks each batch before it appends it, and asks again."""
    with Brokers(2) as brokers:
        brokers.lead(1)
        brokers.cut(2)
        for number in range(3):
            brokers.produce(1, b"%d" % number, acks=1)
        path = brokers.at(1).log.active.path(".log")
        brokers.nodes[1].disk.flip_bit(path, 8 * 100)
        brokers.heal(2)
        brokers.run(10)
        end = brokers.at(2).end_offset
        assert end < 3
        brokers.nodes[1].disk.flip_bit(path, 8 * 100)
        brokers.run_until(lambda: agree(brokers) and brokers.at(2).end_offset == 3)
