"""`ottla cluster why`: what is concluded from leaders, ISR, ELR and the ends of logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.cluster_diagnosis import Partition, Replica, diagnose, loss_sentence
from ottla.cli.cluster_disk import end_on_disk
from ottla.wire.batch_header import HEADER_BYTES, header_layout

HEALTHY = Partition("orders", 0, 1, 7, (1, 2, 3), (1, 2, 3), min_isr=2)
OFFLINE = HEALTHY._replace(leader=None, isr=())
ALL_RUN = {each: Replica("running", 100) for each in (1, 2, 3)}


def test_a_healthy_partition_needs_nothing() -> None:
    """All replicas in the ISR: no needs, no advice, nothing to lose."""
    found = diagnose(HEALTHY, ALL_RUN)
    assert found.state == "healthy"
    assert [row.role for row in found.rows] == ["leader", "in sync", "in sync"]
    assert not any(row.needs for row in found.rows)
    assert (found.loss, found.advice) == (None, "")


@pytest.mark.parametrize(
    ("replica", "needs"),
    [
        (Replica("down", 40), "to be started: ottla cluster restart 3"),
        (Replica("suspended"), "to go on: SIGCONT to its process, or ottla cluster restart 3"),
        (Replica("starting"), "time: its broker is starting"),
        (Replica("running", 40), "time: it copies 60 records"),
        (Replica("running", 100), "its next fetches: it has all that the leader has"),
        (Replica("running", None), "a look at the log of broker 3: it cannot tell of its replica"),
        (Replica("running", 40, fenced=True), "the controller to let its broker in"),
        (Replica("running", 100, damaged="offsets 3 to 4"), "its repair: offsets 3 to 4 are damag"),
    ],
)
def test_each_replica_says_what_it_needs(replica: Replica, needs: str) -> None:
    """By the state of its process and the end of its log."""
    found = diagnose(HEALTHY._replace(isr=(1, 2)), ALL_RUN | {3: replica})
    assert found.state == "under replicated"
    assert found.sentence == ("orders-0 is led by broker 1; of its 3 replicas 3 is not in sync")
    assert found.rows[2].needs.startswith(needs)
    restarts = replica.state in ("down", "suspended")
    assert found.advice == ("ottla cluster restart 3" if restarts else "")
    assert found.rows[2].role == "behind"


@pytest.mark.parametrize(
    ("state", "needs", "advice"),
    [
        (
            "down",
            "to be started: kafka-server-start.sh on the host of broker 3, node03:9092",
            "kafka-server-start.sh on the host of broker 3, node03:9092",
        ),
        (
            "unreachable",
            "to be reached: nobody answers at node03:9092",
            "start broker 3 on its host, or end what keeps others from reaching it",
        ),
    ],
)
def test_a_broker_on_another_host_is_started_there(state: str, needs: str, advice: str) -> None:
    """`ottla cluster restart` is for brokers of this host; whether a silent one runs is not known.

    Nor is the end of its log, so an unclean election may lose more than is said.
    """
    gone = Replica(state, address="node03:9092")
    found = diagnose(HEALTHY._replace(isr=(1, 2)), ALL_RUN | {3: gone})
    assert (found.rows[2].needs, found.advice) == (needs, advice)
    found = diagnose(OFFLINE._replace(elr=(3,)), ALL_RUN | {3: gone})
    assert found.sentence.endswith(f"eligible (ELR) is broker 3, and broker 3 is {state}")
    assert found.advice == advice
    assert found.loss is not None
    assert found.loss.unknown == [3]


def test_damage_that_cannot_be_repaired_yet_is_named() -> None:
    """Also of a leader that is alone in the ISR, and where the replica has not left it."""
    alone = Replica("running", 100, damaged="offsets 3 to 4 (alone in its ISR)")
    found = diagnose(HEALTHY._replace(isr=(1,)), ALL_RUN | {1: alone, 2: Replica("down", 90)})
    assert found.rows[0].needs.startswith("its repair: offsets 3 to 4 (alone in its ISR) are")
    assert found.advice == "ottla cluster restart 2"
    found = diagnose(HEALTHY, ALL_RUN | {2: alone})
    assert found.sentence == (
        "orders-0: all its replicas are in sync; damaged records of 2 are about to be repaired"
    )


def test_too_few_in_sync_for_acks_all() -> None:
    """The config that refuses the writes is named."""
    found = diagnose(HEALTHY._replace(isr=(1,)), ALL_RUN | {2: Replica("down"), 3: Replica("down")})
    assert found.state == "no acks=all"
    assert "2, 3 are not in sync" in found.sentence
    assert "min.insync.replicas is 2, in sync is 1" in found.sentence


def test_an_offline_partition_waits_for_an_eligible_replica() -> None:
    """The ELR may lead without a loss; an unclean election takes the first that runs."""
    partition = OFFLINE._replace(elr=(2,), last_known_leader=1)
    down = {1: Replica("down", 120), 2: Replica("down", 110), 3: Replica("running", 90)}
    found = diagnose(partition, down)
    assert found.state == "offline"
    assert found.sentence == (
        "orders-0 has no leader: eligible (ELR) is broker 2, and broker 2 is down"
    )
    assert [row.role for row in found.rows] == ["last leader", "eligible", "behind"]
    assert found.rows[2].needs == "a leader to copy from"
    assert found.advice == "ottla cluster restart 2"
    assert found.loss is not None
    assert (found.loss.leader, found.loss.first, found.loss.end) == (3, 90, 120)
    assert loss_sentence(found.loss) == (
        "an unclean election would make broker 3 the leader and lose offsets 90 to 119 (30)"
    )


def test_a_log_that_cannot_be_read_may_have_more() -> None:
    """A loss is never said to be smaller than it may be."""
    lost = diagnose(OFFLINE._replace(elr=(1,)), ALL_RUN | {1: Replica("down", None)}).loss
    assert lost is not None
    assert loss_sentence(lost) == (
        "an unclean election would make broker 2 the leader and lose nothing that the logs of the "
        "others have; the log of broker 1 cannot be read and may have more"
    )
    assert lost.offsets == 0
    own = diagnose(OFFLINE, {1: Replica("running", None), 2: Replica("down"), 3: Replica("down")})
    assert own.loss is not None
    assert own.loss.offsets is None
    assert "the end of its log is not known" in loss_sentence(own.loss)


def test_without_anybody_eligible_only_an_unclean_election_helps() -> None:
    """The command for it is named, and nobody is elected where nobody runs or all are fenced."""
    found = diagnose(OFFLINE, ALL_RUN | {1: Replica("running", 5, fenced=True)})
    assert "only an unclean election gives it one" in found.sentence
    assert "--election-type unclean --topic orders --partition 0" in found.advice
    assert found.loss is not None
    assert found.loss.leader == 2
    nobody = diagnose(OFFLINE._replace(isr=(1,)), dict.fromkeys((1, 2, 3), Replica("down", 5)))
    assert nobody.loss is None
    assert "no replica runs" in loss_sentence(nobody.loss)
    assert nobody.sentence.startswith("orders-0 has no leader: in the ISR is broker 1")


def batch(base_offset: int, records: int, payload_bytes: int) -> bytes:
    length = HEADER_BYTES - 12 + payload_bytes
    header = header_layout.pack(
        base_offset, length, 0, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records
    )
    return header + bytes(payload_bytes)


class TestEndOnDisk:
    """Where a log ends whose broker does not run."""

    def test_the_last_whole_batch_counts(self, tmp_path: Path) -> None:
        """Of the last segment; a torn batch and zeros after it do not."""
        (tmp_path / f"{0:020}.log").write_bytes(batch(0, 10, 5))
        last = tmp_path / f"{10:020}.log"
        whole = batch(10, 3, 100) + batch(15, 2, 7)
        last.write_bytes(whole)
        assert end_on_disk(tmp_path) == 17
        last.write_bytes(whole + batch(17, 1, 50)[:-1])
        assert end_on_disk(tmp_path) == 17
        last.write_bytes(whole + bytes(4096))
        assert end_on_disk(tmp_path) == 17
        last.write_bytes(b"")
        assert end_on_disk(tmp_path) == 10

    def test_the_index_shortens_the_walk(self, tmp_path: Path) -> None:
        """From its last entry on, zeros at its end aside; one that points beyond is not used."""
        first, second = batch(0, 5, 9), batch(5, 5, 9)
        (tmp_path / f"{0:020}.log").write_bytes(b"\xff" * len(first) + second)
        index = tmp_path / f"{0:020}.index"
        index.write_bytes((5).to_bytes(4, "big") + len(first).to_bytes(4, "big") + bytes(80))
        assert end_on_disk(tmp_path) == 10
        (tmp_path / f"{0:020}.log").write_bytes(first)
        assert end_on_disk(tmp_path) == 5

    def test_what_is_not_there_is_not_known(self, tmp_path: Path) -> None:
        """No folder, no segment, a strange name."""
        assert end_on_disk(tmp_path / "missing") is None
        assert end_on_disk(tmp_path) is None
        (tmp_path / "notes.log").write_bytes(b"x")
        assert end_on_disk(tmp_path) is None
