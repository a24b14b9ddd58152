"""Partitions that this broker leads, as far as it knows, and of which it can commit nothing.

A leader that neither its controller nor an in-sync follower has reached for longer than a session
lasts is fenced by now, unless there is no controller at all: others lead, and do not reach it to
say so. Clients that still reach it would wait for their time-outs. They are answered
NOT_LEADER_OR_FOLLOWER instead, and look for the leader. Nothing is given up by that: a record with
acks=all is committed when all in-sync followers have it, and an ISR changes with the controller.
While either is there, all goes on: a cluster without its controller serves records.

A client may ask for leaders on the only connection that it has (librdkafka does), and a broker that
no other one reaches knows none but itself: so it ends the connections of producers that it answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

CHECK_S = 0.5


class CutOff:
    """Marks the partitions of one broker that are cut off (`Partition.cut_off`), twice a second."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fetched_s: dict[int, float] = {}  # when each follower was last heard of
        self._marked: dict[Partition, None] = {}
        self._timer: Timer | None = None
        # Whether no other broker has reached this one for so long.
        self.isolated = False

    def fetched(self, broker_id: int) -> None:
        """A follower has sent a fetch."""
        self._fetched_s[broker_id] = self._broker.clock.monotonic()

    def begin(self) -> None:
        """Look from time to time from now on."""
        if self._timer is None:
            self._timer = self._broker.clock.call_later(CHECK_S, self._check)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        broker = self._broker
        self._timer = broker.clock.call_later(CHECK_S, self._check)
        settings = broker.settings
        # A fetch may have waited here for so long before the last one that did not come.
        wait_ms = settings.integer("replica.fetch.wait.max.ms")
        limit_s = (settings.integer("broker.session.timeout.ms") + wait_ms) / 1000
        applier = broker.applier
        found: dict[Partition, None] = {}
        self.isolated = False
        if applier is not None and applier.silent_s > limit_s:
            since_s = broker.clock.monotonic() - limit_s
            silent = {each for each, last_s in self._fetched_s.items() if last_s < since_s}
            self.isolated = len(silent) == len(self._fetched_s)
            found = {each: None for each in broker.replication.leading if self._waits(each, silent)}
        # In their order, not in that of a set: a simulated broker takes the same steps each time.
        for partition in self._marked:
            partition.mark_cut_off(partition in found)
        for partition in found:
            partition.mark_cut_off(True)
        self._marked = found

    def _waits(self, partition: Partition, silent: set[int]) -> bool:
        """Whether a replica must have a record before it is committed that is not there."""
        return any(
            each in silent or each not in self._fetched_s
            for each in partition.in_sync
            if each != self._broker.node_id
        )
