"""Moves of replicas between directories of their brokers, as the reassignment tools see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure
from ottla.client.admin.log_dirs import ReplicaLogDirs
from ottla.client.errors import ReplicaNotAvailableError
from ottla.client.structs import TopicPartitionReplica

if TYPE_CHECKING:
    from ottla.cli.reassignment_plans import Planned
    from ottla.client.admin import Admin

RETRY_S = 0.1  # until a replica is asked for again that its broker does not have yet; Kafka's

TIMEOUT_MS = 10_000  # of --timeout, as Kafka's tool has it
NOWHERE = ReplicaLogDirs()
Targets = dict[TopicPartitionReplica, str]


class MoveState(NamedTuple):
    """How far one replica is from the directory that a file asks for."""

    replica: TopicPartitionReplica
    target: str
    now: ReplicaLogDirs

    @property
    def is_active(self) -> bool:
        return self.now.current_log_dir is not None and self.now.future_log_dir is not None

    @property
    def state(self) -> str:
        """In the words of `ottla reassignments status`."""
        current, future, lag = self.now.current_log_dir, *self.now[2:]
        if current is None:
            return "not found"
        if future == self.target:
            return f"in progress, {lag} behind"
        if future is not None:
            return f"moves to {future} instead"
        return "completed" if current == self.target else f"stays in {current}"

    @property
    def words(self) -> str:
        """As Kafka's tool says it."""
        topic, partition, broker_id = self.replica
        current, future = self.now.current_log_dir, self.now.future_log_dir
        if current is None and future is None:
            return (
                f"Partition {topic}-{partition} cannot be found in any live log directory on "
                f"broker {broker_id}."
            )
        if current is None:
            return (
                f"Partition {topic}-{partition} is not found in any live log dir on broker "
                f"{broker_id}. There is likely an offline log directory on the broker."
            )
        if future == self.target:
            return f"Reassignment of replica {name_of(self.replica)} is still in progress."
        if future is not None:
            return (
                f"Partition {topic}-{partition} on broker {broker_id} is being moved to log dir "
                f"{future} instead of {self.target}."
            )
        if current == self.target:
            return f"Reassignment of replica {name_of(self.replica)} completed successfully."
        return (
            f"Partition {topic}-{partition} on broker {broker_id} is not being moved from log dir "
            f"{current} to {self.target}."
        )


def name_of(replica: TopicPartitionReplica) -> str:
    return f"{replica.topic}-{replica.partition}-{replica.broker_id}"


def by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    """The order in which Kafka's tool lists replicas."""
    return replica.broker_id, replica.topic, replica.partition


def targets_of(planned: Planned) -> Targets:
    """The directories that a file asks for, in the order of Kafka's tool."""
    found = {
        TopicPartitionReplica(each.topic, each.partition, broker_id): path
        for (each, broker_id), path in planned.log_dirs.items()
    }
    return {each: found[each] for each in sorted(found, key=by_broker)}


def states(admin: Admin, targets: Targets) -> list[MoveState]:
    """How far each replica is; nothing of brokers that are not there."""
    known = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
    there = admin.describe_replica_log_dirs(each for each in targets if each.broker_id in known)
    return [MoveState(each, path, there.get(each) or NOWHERE) for each, path in targets.items()]


def way_back(admin: Admin, planned: Planned) -> dict[TopicPartitionReplica, str]:
    """Where the replicas are that a file moves: a move to there cancels the one under way."""
    found = states(admin, targets_of(planned))
    return {each.replica: each.now.current_log_dir or "" for each in found if each.is_active}


def begin(
    admin: Admin,
    targets: Mapping[TopicPartitionReplica, str],
    timeout_ms: int = TIMEOUT_MS,
    say: Callable[[str], object] = print,
) -> None:
    """Start these moves, and say so of each; those of replicas that are just being made too.

    Failure when a broker does not want to, or a replica is not there in time.
    """
    if not targets:
        return
    waiting = dict(targets)
    end_s = time.monotonic() + timeout_ms / 1000
    while True:
        errors = admin.alter_replica_log_dirs(waiting)
        for replica in sorted(waiting, key=by_broker):
            error = errors.get(replica)
            if error is None:
                path = waiting.pop(replica)
                say(started(replica, path))
            elif error is not ReplicaNotAvailableError:
                raise Failure(
                    f"Failed to alter dir for {name_of(replica)}: {error.__name__}",
                    f"kafka-log-dirs.sh --describe --broker-list {replica.broker_id}",
                )
        if not waiting:
            return
        if time.monotonic() >= end_s:
            names = ",".join(map(name_of, sorted(waiting, key=by_broker)))
            many = "" if len(waiting) == 1 else "s"
            raise Failure(
                f"Timed out before log directory move{many} could be started for: {names}",
                "the same again, when the brokers have these replicas",
            )
        time.sleep(RETRY_S)


def started(replica: TopicPartitionReplica, path: str) -> str:
    """In the words of Kafka's tool, which end with a space."""
    return (
        f"Successfully started moving log directory to {path} for replica "
        f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
    )
