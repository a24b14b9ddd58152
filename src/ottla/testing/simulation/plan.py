"""The faults of one run as data: drawn from a seed, written and read as text, dropped one by one.

A fault says when it begins, what it is, whom it strikes, how long it lasts, and a number from which
its details are drawn, so that it stays the same when others are left out. As text:

    3.250 kill leader 1.200 #8f3a
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# What a fault may be: its name, how long it lasts (seconds, least and most), and what it is.
KINDS: dict[str, tuple[float, float, str]] = {
    "kill": (0.0, 2.5, "the process dies; what it had written stays"),
    "power": (0.0, 2.5, "the machine loses power: un-synced bytes are lost, torn or kept"),
    "wipe": (0.3, 2.5, "the machine dies and comes back with an empty disk"),
    "flip": (0.0, 2.5, "the process dies, and bits flip in what it had not synced"),
    "stop": (0.2, 2.0, "the broker is stopped cleanly and started again"),
    "rolling": (1.0, 4.0, "all brokers are stopped and started, one after the other"),
    "pause": (0.1, 4.0, "the process stands still"),
    "cut": (0.1, 4.0, "no packet passes to or from the other brokers"),
    "cut-in": (0.1, 4.0, "no packet of the other brokers arrives"),
    "cut-out": (0.1, 4.0, "no packet to the other brokers arrives"),
    "cut-link": (0.1, 4.0, "no packet passes between two brokers"),
    "isolate": (0.1, 4.0, "no packet passes to or from anybody"),
    "controller": (0.1, 4.0, "no packet passes between the broker and the controller"),
    "join": (0.5, 4.0, "the leader dies right after a follower has joined its ISR"),
    "step": (0.5, 3.0, "the controller dies right after one of its next writes"),
    "session": (0.0, 0.0, "the controller's session with the tree ends"),
    "lost-answer": (0.0, 0.0, "the tree does not answer writes; some of them take place"),
    "depose": (0.0, 1.5, "another controller is elected while the one before goes on"),
    "config": (0.2, 3.0, "min.insync.replicas becomes greater for a while"),
    "slow": (0.5, 5.0, "every packet to and from the other brokers takes long"),
    "drift": (1.0, 8.0, "the machine's clocks gain or lose up to a fifth"),
    "jump": (0.0, 0.0, "the machine's wall clock is set forward or back"),
    "full": (0.2, 2.0, "the disk is full"),
    "sync-error": (0.2, 2.0, "a sync fails"),
    "write-error": (0.2, 2.0, "writes fail"),
    "slow-disk": (0.5, 5.0, "background work, which is what waits for the disk, takes long"),
    "move": (0.1, 1.0, "leadership moves, several times"),
    "rot": (0.0, 0.0, "a bit flips in what one replica has synced"),
    "reassign": (0.1, 2.0, "a partition gets other replicas; half of the times it is cancelled"),
    "grow": (0.0, 0.0, "the topic gets one more partition, with a producer and a reader"),
    "ensemble-cut": (0.1, 5.0, "the broker does not reach ZooKeeper"),
    "ensemble-away": (0.1, 6.0, "nobody reaches ZooKeeper; in half of the cases sessions end"),
    "connection": (0.1, 2.0, "the broker's connection to ZooKeeper is lost, several times"),
    "behind": (0.5, 4.0, "a member of the ensemble that is behind serves the broker"),
}
# What only a tree in ZooKeeper has; its seeds draw all that strikes the tree more often.
OF_ZOOKEEPER = ("ensemble-cut", "ensemble-away", "connection", "behind")
# What users do with partitions is drawn only where it is named: the faults of a seed stay the same.
OF_USERS = ("reassign", "grow")
# Brokers that look for damage all the time take other steps than those that do not.
USUAL_KINDS = tuple(kind for kind in KINDS if kind not in ("rot", *OF_USERS, *OF_ZOOKEEPER))
ZOOKEEPER_KINDS = (*USUAL_KINDS, *(*OF_ZOOKEEPER, "session", "lost-answer", "depose") * 3)
DISK_ERRORS = ("full", "sync-error", "write-error")
# How often each is drawn, where it is not once.
WEIGHTS = {"kill": 3, "power": 2, "pause": 2, "cut": 2, "controller": 2, "move": 2}
TARGETS = ("leader", "leader", "controller", "follower", "any")
BEGIN_S = 1.5
FAULTS = 12
SECONDS = 15.0  # within which the faults begin


class Fault(NamedTuple):
    """One fault of a plan."""

    at_s: float
    kind: str
    target: str  # one of TARGETS, or a broker's id
    lasts_s: float
    draw: int  # the seed of its details

    @property
    def end_s(self) -> float:
        return self.at_s + self.lasts_s

    def __str__(self) -> str:
        return f"{self.at_s:.3f} {self.kind} {self.target} {self.lasts_s:.3f} #{self.draw:04x}"

    @property
    def rng(self) -> random.Random:
        """The source of its details, the same each time."""
        return random.Random(f"{self.kind} {self.draw}")


Plan = tuple[Fault, ...]


def draw_plan(
    seed: int,
    kinds: Sequence[str] = USUAL_KINDS,
    *,
    faults: int = FAULTS,
    seconds: float = SECONDS,
) -> Plan:
    """The faults of a seed: of some kinds at a time, one after the other or overlapping."""
    rng = random.Random(f"{seed} plan")
    # Few kinds in one run, so that each meets itself and each other often.
    some = rng.sample(list(kinds), min(len(kinds), rng.randint(2, 6)))
    weights = [WEIGHTS.get(kind, 1) for kind in some]
    overlapping = rng.random() < 0.6
    plan: list[Fault] = []
    at_s = BEGIN_S
    for _ in range(faults):
        kind = rng.choices(some, weights)[0]
        least, most, _ = KINDS[kind]
        lasts_s = round(rng.uniform(least, most) ** 1.0, 3)
        fault = Fault(round(at_s, 3), kind, rng.choice(TARGETS), lasts_s, rng.getrandbits(16))
        plan.append(fault)
        at_s += rng.expovariate(faults / (seconds - BEGIN_S))
        if not overlapping:
            at_s = max(at_s, fault.end_s + rng.uniform(0, 0.5))
        if at_s > BEGIN_S + seconds:
            break
    return tuple(plan)


def write_plan(plan: Iterable[Fault]) -> str:
    """One fault a line."""
    return "\n".join(map(str, plan))


def read_plan(text: str) -> Plan:
    """What `write_plan` has written; faults may also be separated by semicolons.

    Raises ValueError with the line that is none.
    """
    plan = []
    for line in text.replace(";", "\n").splitlines():
        if not line.strip() or line.lstrip().startswith("--"):
            continue
        try:
            at_s, kind, target, lasts_s, *rest = line.split()
            fault = Fault(
                float(at_s),
                kind,
                target,
                float(lasts_s),
                int(rest[0].removeprefix("#"), 16) if rest else 0,
            )
        except ValueError:
            raise ValueError(
                f"{line.strip()!r} is no fault: seconds, kind, target, duration, #number"
            ) from None
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of fault; there are {', '.join(KINDS)}")
        if target not in TARGETS and not target.isdecimal():
            names = ", ".join(sorted(set(TARGETS)))
            raise ValueError(f"{target!r} is no target: {names}, or a broker's id")
        plan.append(fault)
    return tuple(sorted(plan))
