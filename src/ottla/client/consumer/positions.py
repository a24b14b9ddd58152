"""Where to begin: every assigned partition gets a position, from the group's commits or a reset.

All of it runs in the background thread. `pump` looks for partitions without a position and asks
for what is missing; answers to questions that a seek has overtaken are thrown away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from ..errors import KafkaError, NoOffsetForPartitionError
from ..network.cluster_client import ConsumerClient
from ..structs import TopicPartition
from .epoch_validation import Failed, Validation
from .list_offsets import BEGINNING, END, Found, Offsets, Unfound
from .offset_commits import Commits, Committed
from .subscription import PartitionState, Subscription

log = logging.getLogger("ottla.client")

RESETS = {"earliest": BEGINNING, "latest": END}


class Positions:
    """Finds positions; `changed` is called when there is news, `failed` with what cannot be."""

    def __init__(
        self,
        client: ConsumerClient,
        subscription: Subscription,
        offsets: Offsets,
        commits: Commits | None,
        changed: Callable[[], object],
        failed: Failed,
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
                continue  # the listener of the metadata looks again
            if state.retry_at > now:
                again = min(again or state.retry_at, state.retry_at)
            elif state.reset is not None:
                resets[partition] = state
            elif self.commits is not None:
                committed[partition] = state
            else:
                with self.subscription.lock:
                    if state.position is None and state.reset is None:  # no seek in between
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
            ),
            [state],
        )

    def _ask_committed(self, states: dict[TopicPartition, PartitionState]) -> None:
        assert self.commits is not None
        versions = self._mark(states, has_reset=False)
        if not versions:
            return
        asked = self.commits.fetch(list(versions))

        def on_response(future: Future[Committed]) -> None:
            problem = future.exception()
            failed: list[PartitionState] = []
            with self.subscription.lock:
                for partition, state in answered(states, versions):
                    if problem is not None:
                        failed.append(state)
                        self._later(state)
                        continue
                    found = future.result().get(partition)
                    if found is not None:
                        state.place(found.offset, found.leader_epoch)
                    else:
                        self._fall_back(partition, state)
            self._news(problem, failed)

        asked.add_done_callback(on_response)

    def _ask_resets(self, states: dict[TopicPartition, PartitionState]) -> None:
        versions = self._mark(states, has_reset=True)
        if not versions:
            return
        # A seek since then makes another version: that answer is discarded, whatever was asked.
        asked = self.offsets.ask(
            {each: RESETS.get(states[each].reset or "latest", END) for each in versions}
        )

        def on_response(future: Future[tuple[Found, Unfound]]) -> None:
            found, problems = future.result()
            problem: KafkaError | None = None
            failed: list[PartitionState] = []
            with self.subscription.lock:
                for partition, state in answered(states, versions):
                    if partition in found:
                        offset, epoch = found[partition].offset, found[partition].leader_epoch
                        state.place(offset, epoch)
                        state.validated_epoch = epoch  # by the leader's own answer
                        state.reset = None
                        log.info("%s-%d begins at offset %d", *partition, offset)
                    else:
                        problem = problems[partition]
                        failed.append(state)
                        self._later(state)
            self._news(problem, failed)

        asked.add_done_callback(on_response)

    def _mark(
        self, states: dict[TopicPartition, PartitionState], *, has_reset: bool
    ) -> dict[TopicPartition, int]:
        """Mark the partitions as asked about and return their versions; those that a seek has
        changed since they were looked at are left out."""
        versions = {}
        with self.subscription.lock:
            for partition, state in states.items():
                if state.position is None and (state.reset is not None) == has_reset:
                    state.resolving = True
                    versions[partition] = state.version
        return versions

    def _later(self, state: PartitionState) -> None:
        state.retry_at = time.monotonic() + self.client.config["retry_backoff_ms"] / 1000

    def _news(self, problem: BaseException | None, states: list[PartitionState]) -> None:
        if isinstance(problem, KafkaError) and states and not self.client.closed:
            if not problem.retriable:
                self.failed(problem, states)
            elif problem.invalid_metadata:
                self.client.refresh()
        self.changed()


def answered(
    states: dict[TopicPartition, PartitionState], versions: dict[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, PartitionState]]:
    """The partitions that no seek has changed since they were asked about; `resolving` ends."""
    for partition, version in versions.items():
        state = states[partition]
        if state.version == version:
            state.resolving = False
            yield partition, state
