"""Every difference between Apache Kafka's answers and ours that the suite lets pass, and why.

A line is a name, the places it is about (a pattern over `Api.field.field`, lists without their
index), the reason, and what is done to both answers before they are compared. Whatever is not in
this list must be equal: codes, texts, order, sizes, and whether the connection stays open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.wire.errors import ErrorCode
from tests.apache.messages import NO_UUID
from tests.differential.normal import Names, batches

Treat = Callable[[Any, Names], Any]
CLOCK_SLACK_MS = 3_600_000
HOUR_MS = 3_600_000
MOMENTS_MS = 60 * 24 * HOUR_MS  # more than a token lives
BROKER_RESOURCES = (4, 8)  # a broker's configs, and its loggers


@dataclass(frozen=True)
class Allowed:
    """One allowed difference."""

    name: str
    where: str
    reason: str
    treat: Treat


def ignored(_: Any, __: Names) -> Any:
    """Not compared at all."""
    return "(not compared)"


def topic_id(value: Any, names: Names) -> Any:
    return names.topic(value) if value != NO_UUID else value


def drawn(kind: str) -> Treat:
    """A number each broker draws for itself; 0 and below have meanings of their own."""
    lowest = 0 if kind == "producer" else 1
    return lambda value, names: names.number(kind, value) if value >= lowest else value


def member_id(value: Any, names: Names) -> Any:
    """What is in front of the UUID stays."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9A-Za-z_-]{22}", value):
        return names.number("member", value)
    stem, drawn_id = value[:-36], value[-36:]
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", drawn_id):
        return value
    return stem + names.number("member", drawn_id)


def clock(value: Any, _: Names) -> Any:
    near = abs(value - time.time() * 1000) < CLOCK_SLACK_MS
    return "now" if near else value


def span(ms: float) -> str:
    """In minutes, or in hours if it is long: answers do not come at once."""
    return f"{round(ms / 60_000)} min" if abs(ms) < HOUR_MS / 2 else f"{round(ms / HOUR_MS)} h"


def moment(value: Any, _: Names) -> Any:
    """How far from now; what is not near now in days has a meaning of its own."""
    away_ms = value - time.time() * 1000
    return f"in {span(away_ms)}" if abs(away_ms) < MOMENTS_MS else value


def length(value: Any, _: Names) -> Any:
    return f"of length {len(value)}"


def clock_in_text(value: Any, _: Names) -> Any:
    """Times near now inside a sentence."""

    def word(match: re.Match[str]) -> str:
        return "<now>" if abs(int(match[0]) - time.time() * 1000) < CLOCK_SLACK_MS * 2 else match[0]

    # The bottom of the range is now less the largest long.
    value = re.sub(r"-92233702\d{11}", "<now>", value) if isinstance(value, str) else value
    return re.sub(r"\b\d{13}\b", word, value) if isinstance(value, str) else value


def present(value: Any, _: Names) -> Any:
    return type(value).__name__ if value else value


def kafkas_features(value: Any, _: Names) -> Any:
    """Without our own and Kafka 4.4's, by name."""
    if not isinstance(value, list):
        return value
    kafkas = [dict(each) for each in value if not each["name"].startswith("ottla.")]
    for each in kafkas:
        if each["name"] == "share.version" and each.get("max_version") == 2:
            each["max_version"] = 1
    return sorted(kafkas, key=lambda each: str(each["name"]))


def sorted_by(*keys: str) -> Treat:
    """A list whose order the broker itself leaves to chance."""

    def order(item: Any) -> str:
        return "/".join(f"{item.get(key)!s:>12}" for key in keys)

    return lambda value, _: sorted(value, key=order) if isinstance(value, list) else value


def own_elections(value: Any, names: Names) -> Any:
    """Results in order, without topics of other cases that needed no election."""
    if not isinstance(value, list):
        return value
    found = [each for each in value if each["partition_result"] or names.prefix in each["topic"]]
    return sorted(found, key=lambda each: str(each["topic"]))


# Quorum, telemetry, streams groups.
LATER_APIS = {55, 71, 72, 80, 81, 82, 88, 89}


BARE_WORDS = {
    (
        "This most likely occurs because of a request being malformed by the client library or "
        "the message was sent to an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.INVALID_REQUEST.message,
}


def own_topics(value: Any, names: Names) -> Any:
    if not isinstance(value, list):
        return value
    return [each for each in value if each["name"].startswith(names.prefix)]


def own_resources(value: Any, names: Names) -> Any:
    """Brokers, and what this case has made, in order."""
    if not isinstance(value, list):
        return value
    found = [
        each
        for each in value
        if each.get("resource_type") in BROKER_RESOURCES
        or str(each["resource_name"]).startswith(names.prefix)
    ]
    return sorted(found, key=lambda each: (each.get("resource_type"), each["resource_name"]))


def served_here(value: Any, _: Names) -> Any:
    return [each for each in value if each["api_key"] not in LATER_APIS]


@dataclass(frozen=True)
class OtherAnswer:
    """Steps of a case in which our answer is another one on purpose, and is not compared."""

    name: str
    cases: str
    steps: str
    reason: str

    def covers(self, case_id: str, label: str) -> bool:
        return bool(re.fullmatch(self.cases, case_id) and re.fullmatch(self.steps, label))


INSIDE = "broken inside|wrong count inside|count too (large|small)"
INSIDE = f"({INSIDE}|max timestamp wrong|negative timestamp)"

OTHER_ANSWERS = (
    OtherAnswer(
        "records are not opened",
        r"Produce-(broken_batches|compressed)-.*",
        rf".*{INSIDE}",
        "the broker never opens a batch: length, CRC and header are checked; what a client has "
        "packed wrongly behind a right CRC, or a wrong greatest time, is for it and its readers",
    ),
    OtherAnswer(
        "topics made by asking are there at once",
        r"Metadata-created_by_asking-.*",
        r".* first",
        "Kafka says UNKNOWN_TOPIC_OR_PARTITION until a retry; here the topic is made before the "
        "answer goes out, for some clients give up early",
    ),
    OtherAnswer(
        "lengths beyond 32 bits",
        r".*-wrong_lengths-.*",
        r".*: more than int32",
        "Kafka's counter runs over and takes it for null; we close the connection",
    ),
    OtherAnswer(
        "neither name nor id",
        r"Metadata-(null_name|by_topic_id|wrong_lengths)-v1[23]",
        r"Metadata v1[23] (.*: null|null|zero id)",
        "Kafka's handler fails and answers UNKNOWN_SERVER_ERROR for all; ours says what is wrong",
    ),
    OtherAnswer(
        "a partition twice in one produce",
        r"Produce-the_same_partition_twice-.*",
        r".*",
        "Kafka drops all but the last without a word; here each is appended and answered",
    ),
    OtherAnswer(
        "unknown topics in a share fetch",
        r"ShareFetch-refused_fetches-.*",
        r"ShareFetch v\d (unknown|zero) topic",
        "Kafka answers UNKNOWN_SERVER_ERROR for all of it; ours refuses the partition",
    ),
    OtherAnswer(
        "AlterPartition where brokers listen",
        r"cluster-alter_partition",
        r"AlterPartition .*",
        "Kafka's controllers have a listener of their own; with one listener for clients and "
        "brokers ours answers, and refuses whoever is not the broker that it claims to be",
    ),
    OtherAnswer(
        "client id of length -2",
        r"ApiVersions-broken_frames-.*",
        r"a client id of length -2",
        "Kafka takes any negative length for null; we take -1 alone and close the connection",
    ),
)

ALLOWED = (
    Allowed(
        "config resources of other cases",
        r"ListConfigResources\.config_resources",
        "Kafka lists them in the order of a hash table",
        own_resources,
    ),
    Allowed(
        "APIs that are not served yet",
        r"ApiVersions\.api_keys",
        "only what is served is listed; every API that is served must be listed alike",
        lambda value, names: served_here(value, names) if isinstance(value, list) else value,
    ),
    Allowed(
        "throttle time",
        r".*\.throttle_time_ms",
        "each broker's quotas and timing are its own",
        ignored,
    ),
    Allowed(
        "order of quotas",
        r"(Describe|Alter)ClientQuotas\.entries",
        "Kafka goes through hash tables, of entities and of the parts of one",
        sorted_by("entity"),
    ),
    Allowed(
        "order of an entity's parts",
        r"(Describe|Alter)ClientQuotas\.entries\.entity",
        "Kafka goes through a hash table",
        sorted_by("entity_type"),
    ),
    Allowed(
        "order of an entity's quotas",
        r"DescribeClientQuotas\.entries\.values",
        "Kafka goes through a hash table",
        sorted_by("key"),
    ),
    Allowed(
        "order of users",
        r"(Describe|Alter)UserScramCredentials\.results",
        "Kafka goes through a hash table",
        sorted_by("user"),
    ),
    Allowed(
        "order of a user's credentials",
        r"DescribeUserScramCredentials\.results\.credential_infos",
        "Kafka goes through a hash table",
        sorted_by("mechanism"),
    ),
    Allowed("port", r".*\.port", "two brokers on one machine listen on two ports", ignored),
    Allowed("cluster id", r".*\.cluster_id", "drawn when a cluster is made", present),
    Allowed(
        "controller",
        r"(Metadata|DescribeCluster)\.controller_id",
        "Kafka names any broker, which forwards what it is asked; ours is the controller itself",
        lambda value, _: "a broker" if value in (1, 2, 3) else value,
    ),
    Allowed("topic id", r".*\.topic_id", "drawn when a topic is made", topic_id),
    Allowed("producer id", r".*\.producer_id", "drawn for each producer", drawn("producer")),
    Allowed("member id", r".*\.(member_id|leader)", "drawn for each member", member_id),
    Allowed(
        "order of members",
        r"(JoinGroup|DescribeGroups\.groups)\.members",
        "Kafka's is that of a hash map; ours is that of joining",
        sorted_by("group_instance_id", "member_id"),
    ),
    Allowed(
        "order of assigned topics",
        r"ConsumerGroup(Heartbeat|Describe).*\.topic_partitions",
        "Kafka's is that of a hash map",
        sorted_by("topic_id"),
    ),
    Allowed(
        "order in a description",
        r"(Consumer|Share)GroupDescribe\.groups(\.members)?",
        "Kafka's is that of a hash map, errors first; ours is the request's and that of joining",
        sorted_by("group_id", "member_id"),
    ),
    Allowed(
        "order of a member's topics",
        r"ConsumerGroupDescribe\.groups\.members\.subscribed_topic_names",
        "Kafka's is that of a hash set",
        lambda value, _: sorted(value) if isinstance(value, list) else value,
    ),
    Allowed(
        "drawn ids in error texts",
        r"ConsumerGroupHeartbeat\.error_message",
        "a member of the classic protocol is given its id by the broker",
        lambda value, _: value and re.sub(r"member [\w-]{22}\.$", "member <drawn>", value),
    ),
    Allowed(
        "what is wrong with a pattern",
        r"ConsumerGroupHeartbeat\.error_message",
        "Kafka quotes the library that matches; the words are our own",
        lambda value, _: (
            re.sub(r"(not a valid regular expression): .*", r"\1", value or "") or value
        ),
    ),
    Allowed(
        "epochs of share groups",
        r"ShareGroup(Heartbeat\.member_epoch|Describe\.groups\..*epoch)",
        "how often they rise depends on when the state of each partition has begun",
        present,
    ),
    Allowed(
        "epochs of share groups in texts",
        r"ShareGroupHeartbeat\.error_message",
        "as the epochs themselves",
        lambda value, _: value and re.sub(r"\(\d+\)", "(N)", value),
    ),
    Allowed(
        "words of share groups' errors",
        r"(((Alter|Delete|Describe)ShareGroupOffsets)|\w+ShareGroupState).*error_message",
        "where there are any, the words of an error code are our own",
        lambda value, _: "(words)" if value else value,
    ),
    Allowed(
        "order of deleted groups",
        r"DeleteGroups\.results",
        "Kafka's is that of a hash map; ours is the request's",
        sorted_by("group_id"),
    ),
    Allowed(
        "order of committed offsets",
        r"(OffsetCommit|OffsetFetch(\.groups)?|OffsetDelete)\.topics(\.partitions)?",
        "Kafka's is that of a hash map or has errors first; ours is the request's",
        sorted_by("name", "topic_id", "partition_index"),
    ),
    Allowed(
        "elections of all topics",
        r"ElectLeaders\.replica_election_results",
        "Kafka's order is that of a hash map; topics of other cases may be on their way out",
        own_elections,
    ),
    Allowed("fetch session", r"Fetch\.session_id", "drawn for each session", drawn("session")),
    Allowed("append time", r".*\.log_append_time_ms", "read from the broker's clock", clock),
    Allowed(
        "times of transactions and producers",
        r".*\.(transaction_start_time_ms|last_timestamp)",
        "read from the broker's clock",
        clock,
    ),
    Allowed(
        "order of transactions",
        r"ListTransactions\.transaction_states|DescribeTransactions\.transaction_states\.topics"
        r"|(AddPartitionsToTxn\.results_by|WriteTxnMarkers\.markers).*|TxnOffsetCommit\.topics.*",
        "Kafka's is that of a hash map",
        sorted_by(
            "transactional_id", "topic", "name", "producer_id", "partition_index", "error_code"
        ),
    ),
    Allowed(
        "order of a transaction's partitions",
        r"DescribeTransactions\.transaction_states\.topics\.partitions",
        "Kafka's is that of a hash set",
        lambda value, _: sorted(value) if isinstance(value, list) else value,
    ),
    Allowed(
        "clock in error texts",
        r".*error_message",
        "a limit named in the text is computed from the broker's clock",
        clock_in_text,
    ),
    Allowed(
        "what a token is called, and proven by",
        r"(Create|Describe)DelegationToken\.(tokens\.)?(token_id|hmac)",
        "each broker draws ids for itself, and the proof is that of the id",
        length,
    ),
    Allowed(
        "when a token was issued, and ends",
        r"\w+DelegationToken\.(tokens\.)?\w+_timestamp(_ms)?",
        "both brokers are asked at a time of their own",
        moment,
    ),
    Allowed(
        "order of tokens",
        r"DescribeDelegationToken\.tokens",
        "Kafka's is that of a hash map; ours is that of their issue",
        lambda value, _: sorted(value, key=repr) if isinstance(value, list) else value,
    ),
    Allowed(
        "how long a session lasts",
        r"SaslAuthenticate\.session_lifetime_ms",
        "up to the end of a token, from a time of each broker's own",
        lambda value, _: span(value),
    ),
    Allowed(
        "features epoch",
        r"ApiVersions\.finalized_features_epoch",
        "the offset of Kafka's metadata log; ours is the number of our own feed",
        ignored,
    ),
    Allowed(
        "order of produce answers",
        r"Produce\.responses(\.partition_responses)?",
        "Kafka's comes out of a hash map and changes from run to run; ours is the request's",
        sorted_by("name", "topic_id", "index"),
    ),
    Allowed(
        "order of features, and our own",
        r"ApiVersions\.(supported|finalized)_features",
        "Kafka's order is that of a hash map; ottla.metadata.version is the level of our own feed; "
        "level 2 of share.version, dead letters, is of Kafka 4.4",
        kafkas_features,
    ),
    Allowed(
        "other cases' topics",
        r"DescribeLogDirs\.results\.topics",
        "asked for all topics, a broker also tells of those that other cases are filling just now",
        own_topics,
    ),
    Allowed(
        "order in log directories",
        r"DescribeLogDirs\.results\.topics(\.partitions)?",
        "Kafka's is that of a hash map; ours is by name",
        sorted_by("name", "partition_index"),
    ),
    Allowed(
        "order of metadata",
        r"Metadata\.topics",
        "Kafka puts unknown topics behind; ours are in the request's order",
        sorted_by("name", "topic_id"),
    ),
    Allowed(
        "order of offsets",
        r"(ListOffsets|DeleteRecords)\.topics(\.partitions)?",
        "Kafka's is that of a hash map, errors first; ours is the request's",
        sorted_by("name", "partition_index"),
    ),
    Allowed(
        "order of new partitions",
        r"CreatePartitions\.results",
        "Kafka's is that of a hash map; ours is the request's",
        sorted_by("name"),
    ),
    Allowed(
        "words for a bare code",
        r".*\.error_message",
        "where a message only says again what the code says, the words are our own",
        lambda value, _: "(words)" if value in BARE_WORDS else value,
    ),
    Allowed(
        "order of deletion answers",
        r"DeleteTopics\.responses",
        "Kafka shuffles it; ours is the request's",
        sorted_by("name", "topic_id", "error_code"),
    ),
    Allowed(
        "data directory",
        r"DescribeLogDirs\.results\.log_dir",
        "each broker has a directory of its own, with its path in it",
        present,
    ),
    Allowed(
        "free space",
        r"DescribeLogDirs\.results\.(usable|total)_bytes",
        "other processes use the same disk",
        present,
    ),
    Allowed(
        "records",
        r"Fetch\.responses\.partitions\.records",
        "shown batch by batch; times and ids drawn by a broker are left out",
        batches,
    ),
)
