"""Where to begin: every assigned partition gets a position, from the group's commits or a reset.

All of it runs in the background thread. `pump` looks for partitions without a position and asks
for what is missing; answers to questions that a seek has overtaken are thrown away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import KafkaError, NoOffsetForPartitionError
from ..network.cluster_client import Client
from ..structs import TopicPartition
from .epoch_validation import Validation
from .list_offsets import BEGINNING, END, Offsets
from .offset_commits import Commits
from .subscription import PartitionState, Subscription

log = logging.getLogger("ottla.client")

RESETS = {"earliest": BEGINNING, "latest": END}


class Positions:
    """Finds positions; `changed` is called when there is news, `failed` with what cannot be."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        offsets: Offsets,
        commits: Commits | None,
        changed: Callable[[], object],
        failed: Callable[[KafkaError], object],
    ) -> None:
        self.client = client
        self.subscription = subscription
        self.offsets = offsets
        self.commits = commits
        self.changed = changed
        self.failed = failed
        self.policy: str = client.config["auto_offset_reset"]
        self.validation = Validation(client, subscription, changed, failed)

    def pump(self) -> float | None:
        """Ask for what is missing; when to look again, if that is before the next news."""
        now = time.monotonic()
        committed: dict[TopicPartition, PartitionState] = {}
        resets: dict[TopicPartition, PartitionState] = {}
        again: float | None = None
        for partition, state in self.subscription.states.items():
            if state.position is not None or state.resolving or state.held:
                continue
            if self.client.metadata.awaited(partition.topic):
                continue  # whoever waits for that is told when it comes
            if state.retry_at > now:
                again = min(again or state.retry_at, state.retry_at)
            elif state.reset is not None:
                resets[partition] = state
            elif self.commits is not None:
                committed[partition] = state
            else:
                with self.subscription.lock:
                    if state.position is not None:
                        continue  # a seek came in between
                    self._fall_back(partition, state)
                if state.reset is not None:
                    resets[partition] = state
        if committed:
            self._ask_committed(committed)
        if resets:
            self._ask_resets(resets)
        return again

    def _fall_back(self, partition: TopicPartition, state: PartitionState) -> None:
        """Nothing is committed: the policy decides, and "none" means to tell the caller."""
        if self.policy != "none":
            state.reset = self.policy
            return
        state.held = True  # until a seek
        group = self.client.config["group_id"]
        why = f"group {group!r} has committed no offset" if group else "there is no group_id"
        self.failed(
            NoOffsetForPartitionError(
                f"no position for {partition.topic}-{partition.partition}: {why}, and "
                "auto_offset_reset is 'none'\n"
                "Try: seek() it, or auto_offset_reset='earliest'"
            )
        )

    def _ask_committed(self, states: dict[TopicPartition, PartitionState]) -> None:
        assert self.commits is not None
        versions = self._mark(states)
        asked = self.commits.fetch(list(states))

        def heard(future: Future[Any]) -> None:
            problem = future.exception()
            with self.subscription.lock:
                for partition, state in states.items():
                    if state.version != versions[partition]:
                        continue
                    state.resolving = False
                    if problem is not None:
                        self._later(state)
                        continue
                    found = future.result().get(partition)
                    if found is not None:
                        state.place(found.offset, found.leader_epoch)
                    else:
                        self._fall_back(partition, state)
            self._news(problem)

        asked.add_done_callback(heard)

    def _ask_resets(self, states: dict[TopicPartition, PartitionState]) -> None:
        versions = self._mark(states)
        asked = self.offsets.ask(
            {partition: RESETS[state.reset or self.policy] for partition, state in states.items()}
        )

        def heard(future: Future[Any]) -> None:
            found, failed = future.result()
            problem: KafkaError | None = None
            with self.subscription.lock:
                for partition, state in states.items():
                    if state.version != versions[partition]:
                        continue
                    state.resolving = False
                    if partition in found:
                        offset, epoch = found[partition].offset, found[partition].leader_epoch
                        state.place(offset, epoch)
                        state.validated_epoch = epoch  # by the leader's own answer
                        state.reset = None
                        log.info("%s-%d begins at offset %d", *partition, offset)
                    else:
                        problem = failed[partition]
                        self._later(state)
            self._news(problem)

        asked.add_done_callback(heard)

    def _mark(self, states: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
        for state in states.values():
            state.resolving = True
        return {partition: state.version for partition, state in states.items()}

    def _later(self, state: PartitionState) -> None:
        state.retry_at = time.monotonic() + self.client.config["retry_backoff_ms"] / 1000

    def _news(self, problem: BaseException | None) -> None:
        if isinstance(problem, KafkaError) and not self.client.closed:
            if not problem.retriable:
                self.failed(problem)
            elif problem.invalid_metadata:
                self.client.refresh()
        self.changed()
