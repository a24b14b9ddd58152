"""The questions to a cluster, each answered into what is `Known`; all wait at most `TIMEOUT_MS`.

A broker that does not answer is noted, and not asked again in the same round. Errors of the whole
cluster are raised as `KafkaError`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.client.admin import Admin, OffsetSpec
from ottla.client.errors import KafkaError, UnsupportedVersionError
from ottla.client.kafka_releases import METADATA, release_name
from ottla.client.structs import OffsetAndMetadata, TopicPartition

from ..picture import LogDirPicture, MemberPicture, ReassignmentPicture, TransactionPicture
from .known import Known, KnownBroker, KnownGroup, KnownPartition, KnownTopic

TIMEOUT_MS = 5_000
BROKER_KEPT_MS = 10 * 60_000  # long enough for an alert, and for a restart
MEMBERS_MAX = 20_000  # of all groups together; a picture with more would be of no use
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
CLASSIC = "classic"
OTTLA_FEATURE = "ottla.metadata.version"


class Round:
    """One pass of questions over a cluster."""

    def __init__(self, admin: Admin, known: Known, now_ms: Callable[[], int]) -> None:
        self.admin = admin
        self.known = known
        self.now_ms = now_ms

    def metadata(self) -> None:
        known, answer = self.known, self.admin.survey_metadata(TIMEOUT_MS)
        if known.cluster_id not in (None, answer.cluster_id):
            known.begin_anew()
        known.answered_ms = self.now_ms()
        known.cluster_id = answer.cluster_id
        known.controller_id = answer.controller_id if answer.controller_id >= 0 else None
        for broker in known.brokers.values():
            broker.listed = False
            broker.gone_ms = broker.gone_ms or known.answered_ms
        for each in answer.brokers:
            before = known.brokers.get(each.node_id)
            log_dirs = before.log_dirs if before is not None else ()
            known.brokers[each.node_id] = KnownBroker(
                each.node_id, each.host, each.port, each.rack, log_dirs=log_dirs
            )
        before_topics = known.topics
        known.topics = {
            topic.name: changed_topic(before_topics.get(topic.name), topic)
            for topic in answer.topics
            if topic.name is not None and not topic.error_code
        }
        known.made_again = [
            TopicPartition(name, part.partition)
            for name, now in known.topics.items()
            if (was := before_topics.get(name)) is not None and was.topic_id != now.topic_id
            for part in was.partitions
        ]
        known.forget_records()
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for name, known_topic in known.topics.items():
            for part in known_topic.partitions:
                if part.leader is not None:
                    by_leader[part.leader].append(TopicPartition(name, part.partition))
        known.by_leader = dict(by_leader)

    def finish(self) -> None:
        """At the end of the round: what is wrong with which broker."""
        known = self.known
        self._forget_brokers()
        for broker in known.brokers.values():
            about = f"broker {broker.node_id}"
            if not broker.listed:
                known.problems.found(about, "it is not in the cluster at the moment", self.now_ms())
            elif broker.answers:
                known.problems.gone(about)

    def _forget_brokers(self) -> None:
        """Those that were taken away: not listed for a while, and no partition counts on them."""
        known = self.known
        before_ms = self.now_ms() - BROKER_KEPT_MS
        gone = {
            node_id
            for node_id, each in known.brokers.items()
            if not each.listed and each.gone_ms is not None and each.gone_ms <= before_ms
        }
        if not gone:
            return
        for topic in known.topics.values():
            for part in topic.partitions:
                gone.difference_update(part.replicas)
        for node_id in gone:
            del known.brokers[node_id]
            known.problems.gone(f"broker {node_id}")

    def ends(self) -> dict[TopicPartition, int]:
        """The newest high watermarks; also returned by themselves."""
        known = self.known
        found, errors = self.admin.survey_offsets(
            self._of_reachable(known.by_leader), OffsetSpec.LATEST, TIMEOUT_MS
        )
        self._note(errors)
        known.ends = of_existing(known, known.ends | found)
        return found

    def starts(self) -> None:
        known = self.known
        found, errors = self.admin.survey_offsets(
            self._of_reachable(known.by_leader), OffsetSpec.EARLIEST, TIMEOUT_MS
        )
        self._note(errors)
        known.starts = of_existing(known, known.starts | found)

    def log_dirs(self) -> None:
        known = self.known
        found, errors = self.admin.survey_log_dirs(known.reachable, TIMEOUT_MS)
        self._note(errors)
        leaders = {each: broker for broker, theirs in known.by_leader.items() for each in theirs}
        topic_sizes: dict[str, int] = defaultdict(int)
        sizes = dict(known.leader_sizes)
        coming = {
            TopicPartition(each.topic, each.partition): each.adding for each in known.reassignments
        }
        moving: dict[TopicPartition, dict[int, int]] = {each: {} for each in coming}
        for node_id, directories in found.items():
            pictures = []
            for each in directories:
                used = 0
                for topic in each.topics:
                    of_topic = 0
                    for part in topic.partitions:
                        of_topic += part.partition_size
                        where = TopicPartition(topic.name, part.partition_index)
                        if leaders.get(where) == node_id and not part.is_future_key:
                            sizes[where] = part.partition_size
                        if node_id in coming.get(where, ()):
                            moving[where][node_id] = part.partition_size
                    topic_sizes[topic.name] += of_topic
                    used += of_topic
                pictures.append(
                    LogDirPicture(
                        path=each.log_dir,
                        error=f"error {each.error_code}" if each.error_code else None,
                        replicas=sum(len(topic.partitions) for topic in each.topics),
                        used_bytes=used,
                        total_bytes=each.total_bytes if each.total_bytes >= 0 else None,
                        usable_bytes=each.usable_bytes if each.usable_bytes >= 0 else None,
                    )
                )
            known.brokers[node_id].log_dirs = tuple(pictures)
        known.leader_sizes = of_existing(known, sizes)
        known.moving_sizes = moving
        if found and not errors:
            known.topic_sizes = dict(topic_sizes)
        else:  # of half the brokers only: no less than before
            for name, size in topic_sizes.items():
                known.topic_sizes[name] = max(size, known.topic_sizes.get(name, 0))

    def groups(self) -> None:
        known = self.known
        found, errors = self.admin.survey_groups(known.reachable, TIMEOUT_MS)
        self._note(errors)
        listed: dict[str, KnownGroup] = {}
        for coordinator, groups in found.items():
            for each in groups:
                if each.group_type in ("", CLASSIC) and each.protocol_type not in ("", "consumer"):
                    kind = each.protocol_type  # connect, a schema registry …
                else:
                    kind = each.group_type.lower() or CLASSIC
                before = known.groups.get(each.group_id)
                if before is None:
                    before = KnownGroup(each.group_id, kind, each.group_state, coordinator)
                before.kind, before.coordinator = kind, coordinator
                before.state = each.group_state or before.state
                listed[each.group_id] = before
        for group_id, group in known.groups.items():
            if group_id not in listed and group.coordinator in errors:
                listed[group_id] = group  # nobody could say that it is gone
        known.groups = listed

    def members(self) -> None:
        """State, members and assignments of groups, each kind by its own API."""
        known = self.known
        asked = [each for each in known.groups.values() if each.kind not in OTHER_KINDS]
        found, errors = self.admin.survey_members(by_coordinator(known, asked), TIMEOUT_MS)
        self._note(errors)
        left = MEMBERS_MAX
        for group_id, described in found.items():
            group = known.groups[group_id]
            group.state = described["group_state"] or group.state
            group.protocol = described["protocol_data"]
            group.members = tuple(member_in(each) for each in described["members"][:left])
            left -= len(group.members)
        for kind in NEW_KINDS:
            left = self._new_members(kind, left)

    def _new_members(self, kind: str, left: int) -> int:
        """Of the groups of a new protocol; how many members may still be taken."""
        known = self.known
        asked = [each for each in known.groups.values() if each.kind == kind]
        if not asked:
            return left
        found, errors = self.admin.survey_new_members(
            by_coordinator(known, asked), kind, TIMEOUT_MS
        )
        self._note({at: each for at, each in errors.items() if not lacks(each)})
        for group_id, described in found.items():
            group = known.groups[group_id]
            group.state = described.group_state or group.state
            group.protocol = described.assignor_name
            group.members = tuple(new_member_in(each) for each in described.members[:left])
            left -= len(group.members)
        return left

    def committed(self) -> None:
        known = self.known
        asked = [each for each in known.groups.values() if each.kind != "share"]
        found, errors = self.admin.survey_committed(by_coordinator(known, asked), TIMEOUT_MS)
        self._note(errors)
        for group_id, offsets in found.items():
            known.groups[group_id].committed = offsets
        shares = [each for each in known.groups.values() if each.kind == "share"]
        if not shares:
            return
        starts, errors = self.admin.survey_share_offsets(by_coordinator(known, shares), TIMEOUT_MS)
        self._note({at: each for at, each in errors.items() if not lacks(each)})
        for group_id, theirs in starts.items():
            group = known.groups[group_id]
            group.committed = {
                at: OffsetAndMetadata(each.start_offset) for at, each in theirs.items()
            }
            group.share_lags = {at: each.lag for at, each in theirs.items() if each.lag is not None}

    def transactions(self) -> None:
        found, errors = self.admin.survey_transactions(
            self.known.reachable, OPEN_STATES, TIMEOUT_MS
        )
        unsupported = {at for at, each in errors.items() if lacks(each)}  # before Kafka 3.0
        self._note({at: each for at, each in errors.items() if at not in unsupported})
        self.known.transactions = tuple(
            TransactionPicture(
                transactional_id=name,
                producer_id=each.producer_id,
                state=str(each.state),
                coordinator=each.coordinator_id,
                started_ms=each.transaction_start_time_ms
                if each.transaction_start_time_ms >= 0
                else None,
                timeout_ms=each.transaction_timeout_ms,
                partitions=tuple(sorted((part[0], part[1]) for part in each.topic_partitions)),
            )
            for name, each in sorted(found.items())
        )

    def reassignments(self) -> None:
        try:
            found = self.admin.list_partition_reassignments(timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            if lacks(error):
                return
            raise
        self.known.reassignments = tuple(
            ReassignmentPicture(
                topic,
                partition,
                tuple(each["replicas"]),
                tuple(each["adding_replicas"]),
                tuple(each["removing_replicas"]),
            )
            for (topic, partition), each in sorted(found.items())
        )

    def software(self) -> None:
        """What the brokers run, by the features that they have."""
        features = self.admin.describe_features()["features"]
        if OTTLA_FEATURE in features:
            self.known.software = "Ottla"
        else:
            levels = features[METADATA]["supported"] if METADATA in features else None
            release = release_name(levels[1]).partition("-")[0] if levels else ""
            self.known.software = f"Apache Kafka {release}".rstrip()

    def _of_reachable(
        self, by_leader: Mapping[int, list[TopicPartition]]
    ) -> dict[int, list[TopicPartition]]:
        reachable = set(self.known.reachable)
        return {broker: theirs for broker, theirs in by_leader.items() if broker in reachable}

    def _note(self, errors: Mapping[int, KafkaError]) -> None:
        for node_id, error in errors.items():
            self.known.brokers[node_id].answers = False
            first = str(error).partition("\n")[0]
            self.known.problems.found(
                f"broker {node_id}", f"it does not answer: {first}", self.now_ms()
            )


NEW_KINDS = ("consumer", "share")
OTHER_KINDS = (*NEW_KINDS, "streams")  # described by other APIs


def lacks(error: KafkaError) -> bool:
    """Whether the broker is too old for the question."""
    return isinstance(error, UnsupportedVersionError)


def changed_topic(before: KnownTopic | None, topic: Any) -> KnownTopic:
    """A topic of the metadata; the one known before, where nothing has changed."""
    partitions = tuple(
        sorted(
            (
                KnownPartition(
                    each.partition_index,
                    each.leader_id if each.leader_id >= 0 else None,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                )
                for each in topic.partitions
            ),
            key=lambda each: each.partition,
        )
    )
    now = KnownTopic(topic.name, id_text(topic.topic_id), topic.is_internal, partitions)
    return before if before == now else now


def id_text(raw: bytes) -> str | None:
    """A topic's id as Kafka prints it; none where the broker has none."""
    import base64

    plain = bytes(raw)
    return base64.urlsafe_b64encode(plain)[:22].decode() if any(plain) else None


def member_in(described: Mapping[str, Any]) -> MemberPicture:
    assignment = described["member_assignment"]
    assigned: list[tuple[str, int]] = []
    if isinstance(assignment, Mapping):
        for each in assignment["assigned_partitions"]:
            assigned.extend((each["topic"], index) for index in each["partitions"])
    return MemberPicture(
        member_id=described["member_id"],
        instance_id=described["group_instance_id"],
        client_id=described["client_id"],
        host=described["client_host"],
        assigned=tuple(sorted(assigned)),
    )


def new_member_in(described: Any) -> MemberPicture:
    return MemberPicture(
        member_id=described.member_id,
        instance_id=getattr(described, "instance_id", None),
        client_id=described.client_id,
        host=described.client_host,
        assigned=tuple(
            sorted(
                (each.topic_name, index)
                for each in described.assignment.topic_partitions
                for index in each.partitions
            )
        ),
    )


def by_coordinator(known: Known, groups: Iterable[KnownGroup]) -> dict[int, list[str]]:
    reachable = set(known.reachable)
    found: dict[int, list[str]] = defaultdict(list)
    for each in groups:
        if each.coordinator in reachable:
            found[each.coordinator].append(each.group_id)
    return dict(found)


def of_existing(known: Known, values: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Without the partitions of deleted topics."""
    if all(each.topic in known.topics for each in values):
        return values
    return {each: value for each, value in values.items() if each.topic in known.topics}
