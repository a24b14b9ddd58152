"""What a controller counts of its elections, under the names of Kafka's ControllerStats."""

from collections.abc import Iterable

from ottla.cluster.image import Change, ClusterImage, PartitionsChanged
from ottla.metrics import Metrics

STATS = "kafka_controller_ControllerStats"
TIME_BOUNDS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 30_000.0)


class ElectionMetrics:
    """Counted once a change is in the tree; one for all controllers that a process has hosted."""

    def __init__(self, metrics: Metrics) -> None:
        self.elected = 0  # partitions that have got another leader
        self.time = metrics.timer(
            f"{STATS}_LeaderElectionRateAndTimeMs",
            "Times that brokers came or went and others lead since: from the decision to the tree.",
            TIME_BOUNDS_MS,
        )
        self.unclean = metrics.counter(
            f"{STATS}_UncleanLeaderElectionsPerSec", "Leaders from neither the ISR nor the ELR."
        )
        self.from_elr = metrics.counter(
            f"{STATS}_ElectionFromEligibleLeaderReplicasPerSec", "Leaders from the ELR (KIP-966)."
        )

    def observe(self, before: ClusterImage, changes: Iterable[Change]) -> None:
        """Changes that are about to be made to an image."""
        for change in changes:
            if not isinstance(change, PartitionsChanged):
                continue
            known = before.topics[change.name].partitions
            for new in change.partitions:
                old = known[new.index]
                if new.leader < 0 or new.leader == old.leader:
                    continue
                self.elected += 1
                if new.leader not in old.isr:
                    (self.from_elr if new.leader in old.elr else self.unclean).value += 1
