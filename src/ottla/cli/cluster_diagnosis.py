"""Why a partition has no leader, or a replica of it is not in sync, and what helps. Pure.

It follows the controller's rules (`ottla.cluster.elections`): a leader comes from the ISR, then
from the ELR (KIP-966), then the last known leader returns. Only an unclean election takes another
replica, the first one that runs, and what that one lacks is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

RUNNING, STARTING, SUSPENDED, DOWN = "running", "starting", "suspended", "down"
UNREACHABLE = "unreachable"  # of a broker on another host, which may run


class Partition(NamedTuple):
    """One partition, as the cluster describes it."""

    topic: str
    index: int  # type: ignore[assignment] # hides tuple.index, which is not needed
    leader: int | None
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] = ()
    last_known_leader: int | None = None
    min_isr: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def eligible(self) -> Sequence[int]:
        """Who may lead without an unclean election when nobody does."""
        last = () if self.last_known_leader is None else (self.last_known_leader,)
        return self.isr or self.elr or last


class Replica(NamedTuple):
    """What is seen of one replica: its broker's process, and where its log ends."""

    state: str
    end: int | None = None
    fenced: bool = False  # registered, and not let in by the controller
    damaged: str = ""  # the offsets that are damaged on its disk, and why they stay so
    address: str = ""  # of a broker that `ottla cluster restart` does not start


class Row(NamedTuple):
    """One replica with what it needs; the words are empty if that is nothing."""

    broker: int
    state: str
    role: str
    end: int | None
    lag: int | None
    needs: str


class Loss(NamedTuple):
    """What an unclean election would do now: who leads, and which offsets are gone."""

    leader: int
    first: int | None  # None: the end of that replica's log is not known
    end: int | None
    unknown: Sequence[int] = ()  # replicas whose logs cannot be asked: they may have more

    @property
    def offsets(self) -> int | None:
        """How many offsets; None if that is not known."""
        return None if self.first is None or self.end is None else self.end - self.first


class Diagnosis(NamedTuple):
    """The answer to `why`."""

    state: str  # offline, no acks=all, under replicated, healthy
    sentence: str
    rows: Sequence[Row]
    loss: Loss | None  # of a partition that is offline, if a replica of it runs
    advice: str


def diagnose(partition: Partition, replicas: Mapping[int, Replica]) -> Diagnosis:
    """Explain one partition; `replicas` has each of its replicas by broker."""
    rows = [row(partition, broker, replicas) for broker in partition.replicas]
    missing = [each for each in partition.replicas if each not in partition.isr]
    name, count = partition.name, len(partition.replicas)
    if partition.leader is None:
        return Diagnosis(
            "offline", offline_sentence(partition, replicas), rows, loss(partition, replicas),
            offline_advice(partition, replicas),
        )  # fmt: skip
    if not missing:
        damaged = [each for each in partition.replicas if replicas[each].damaged]
        if damaged:
            sentence = (
                f"{name}: all its replicas are in sync; damaged records of {listed(damaged)} "
            )
            sentence += "are about to be repaired"
        else:
            sentence = f"nothing is wrong with {name}: all its replicas are in sync"
        return Diagnosis("healthy", sentence, rows, None, "")
    sentence = f"{name} is led by broker {partition.leader}; of its {count} replicas "
    sentence += f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} not in sync"
    state = "under replicated"
    if len(partition.isr) < partition.min_isr:
        state = "no acks=all"
        sentence += (
            f", and writes with acks=all are refused: min.insync.replicas is {partition.min_isr}, "
            f"in sync {'is' if len(partition.isr) == 1 else 'are'} {len(partition.isr)}"
        )
    return Diagnosis(state, sentence, rows, None, restart_advice(missing, replicas))


def row(partition: Partition, broker: int, replicas: Mapping[int, Replica]) -> Row:
    replica = replicas[broker]
    leader_end = None if partition.leader is None else replicas[partition.leader].end
    lag = None
    if replica.end is not None and leader_end is not None:
        lag = max(0, leader_end - replica.end)
    needs = needed(partition, broker, replica, lag)
    return Row(broker, replica.state, role(partition, broker), replica.end, lag, needs)


def role(partition: Partition, broker: int) -> str:
    if broker == partition.leader:
        return "leader"
    if broker in partition.isr:
        return "in sync"
    if broker in partition.elr:
        return "eligible"
    if broker == partition.last_known_leader:
        return "last leader"
    return "behind"


def needed(partition: Partition, broker: int, replica: Replica, lag: int | None) -> str:
    """What has to happen for a replica to be in the ISR, and whole."""
    if replica.damaged and replica.state == RUNNING:
        return f"its repair: {replica.damaged} are damaged on its disk, and are copied from another"
    if broker in partition.isr and partition.leader is not None:
        return ""
    if replica.state == DOWN:
        return f"to be started: {how_to_start(broker, replica)}"
    if replica.state == UNREACHABLE:
        return f"to be reached: nobody answers at {replica.address}"
    if replica.state == SUSPENDED:
        return f"to go on: SIGCONT to its process, or ottla cluster restart {broker}"
    if replica.state == STARTING:
        return "time: its broker is starting"
    if replica.fenced:
        return "the controller to let its broker in, once that has caught up with the cluster"
    if partition.leader is None:
        return "a leader to copy from"
    if replica.end is None:
        return f"a look at the log of broker {broker}: it cannot tell of its replica"
    if lag:
        return f"time: it copies {lag} records"
    return "its next fetches: it has all that the leader has"


def offline_sentence(partition: Partition, replicas: Mapping[int, Replica]) -> str:
    name, eligible = partition.name, partition.eligible
    if not eligible:
        return (
            f"{name} has no leader: no replica is known to have all that was committed, "
            "and only an unclean election gives it one"
        )
    who = (
        "in the ISR" if partition.isr else "eligible (ELR)" if partition.elr else "the last leader"
    )
    how = [f"broker {each} is {state_words(replicas[each])}" for each in eligible]
    return f"{name} has no leader: {who} {were(eligible)} {listed(eligible)}, and {', '.join(how)}"


def restart_advice(brokers: Sequence[int], replicas: Mapping[int, Replica]) -> str:
    """The command that brings one of them back; empty where only time does, or the controller."""
    for state in (DOWN, SUSPENDED, UNREACHABLE):
        for broker in brokers:
            if replicas[broker].state == state:
                return how_to_start(broker, replicas[broker])
    return ""


def how_to_start(broker: int, replica: Replica) -> str:
    """The command; on another host nobody here can give it."""
    if replica.state == UNREACHABLE:
        return f"start broker {broker} on its host, or end what keeps others from reaching it"
    if replica.address:
        return f"kafka-server-start.sh on the host of broker {broker}, {replica.address}"
    return f"ottla cluster restart {broker}"


def offline_advice(partition: Partition, replicas: Mapping[int, Replica]) -> str:
    if not partition.eligible:
        return (
            f"kafka-leader-election.sh --election-type unclean --topic {partition.topic} "
            f"--partition {partition.index}, which loses what the new leader lacks"
        )
    return restart_advice(partition.eligible, replicas)


def loss(partition: Partition, replicas: Mapping[int, Replica]) -> Loss | None:
    """What an unclean election loses; None if no replica runs that could be elected.

    Whatever any replica has beyond the new leader's end is gone when it follows that leader.
    """
    able = [each for each in partition.replicas if can_lead(replicas[each])]
    if not able:
        return None
    chosen = able[0]
    first = replicas[chosen].end
    ends = {each: replicas[each].end for each in partition.replicas if each != chosen}
    known = [end for end in ends.values() if end is not None]
    unknown = [each for each, end in ends.items() if end is None]
    end = None if first is None else max([first, *known])
    return Loss(chosen, first, end, unknown)


def can_lead(replica: Replica) -> bool:
    return replica.state == RUNNING and not replica.fenced


def loss_sentence(found: Loss | None) -> str:
    """What an unclean election would lose, in words."""
    if found is None:
        return "an unclean election would change nothing: no replica runs that could lead"
    begin = f"an unclean election would make broker {found.leader} the leader and lose "
    if found.first is None or found.end is None:
        return begin + "what it lacks: the end of its log is not known"
    if found.end > found.first:
        lost = f"offsets {found.first} to {found.end - 1} ({found.end - found.first})"
    else:
        lost = "nothing that the logs of the others have"
    if found.unknown:
        lost += f"; the log of broker {listed(found.unknown)} cannot be read and may have more"
    return begin + lost


def state_words(replica: Replica) -> str:
    return "fenced" if replica.state == RUNNING and replica.fenced else replica.state


def were(brokers: Sequence[int]) -> str:
    return "is broker" if len(brokers) == 1 else "are brokers"


def listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
