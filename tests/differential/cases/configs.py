"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from tests.apache.batches import Record, batch
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

DESCRIBE = "DescribeConfigs"
ALTER = "AlterConfigs"
INCREMENTAL = "IncrementalAlterConfigs"
LIST = "ListConfigResources"
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3
SOME = ["retention.ms", "cleanup.policy", "segment.bytes", "compression.type"]


def about(*resources: tuple[int, str, list[str] | None], **fields: object) -> Fields:
    items = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in resources
    ]
    return {"resources": items, **fields}


@case(DESCRIBE)
def of_topics(peer: Peer, version: int) -> None:
    plain = peer.create_topic("plain")
    changed = peer.create_topic("changed", configs={"retention.ms": "5", "preallocate": "true"})
    peer.ask(DESCRIBE, version, about((TOPIC, plain, None)), "all of a plain one")
    peer.ask(DESCRIBE, version, about((TOPIC, changed, None)), "all of a changed one")
    peer.ask(DESCRIBE, version, about((TOPIC, changed, SOME)), "some")
    peer.ask(DESCRIBE, version, about((TOPIC, changed, [])), "none")
    peer.ask(DESCRIBE, version, about((TOPIC, changed, ["no.such", "flush.ms"])), "an unknown one")
    two = about((TOPIC, changed, ["flush.ms"]), (TOPIC, plain, ["flush.ms"]))
    peer.ask(DESCRIBE, version, two, "two")
    twice = about((TOPIC, plain, ["flush.ms"]), (TOPIC, plain, ["segment.ms"]))
    peer.ask(DESCRIBE, version, twice, "twice")


@case(DESCRIBE)
def with_synonyms(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"retention.ms": "5"})
    peer.ask(DESCRIBE, version, about((TOPIC, topic, SOME), include_synonyms=True), "some")
    peer.ask(DESCRIBE, version, about((TOPIC, topic, None), include_synonyms=True), "all")
    if version >= 3:
        fields = about((TOPIC, topic, SOME), include_documentation=True)
        answer = peer.quietly(DESCRIBE, version, fields)
        written = [bool(each["documentation"]) for each in answer["results"][0]["configs"]]
        peer.note("documented", written)


@case(DESCRIBE)
def describe_mistakes(peer: Peer, version: int) -> None:
    for name in ("never", "", "a/b", ".."):
        peer.ask(DESCRIBE, version, about((TOPIC, name, None)), f"topic {name!r}")
    for name in ("7", "-1", "one", "1.0", " 1"):
        peer.ask(DESCRIBE, version, about((BROKER, name, None)), f"broker {name!r}")
    for kind in (0, 1, 3, 64, 127, -1):
        peer.ask(DESCRIBE, version, about((kind, "x", None)), f"type {kind}")
    topic = peer.create_topic()
    mixed = about((TOPIC, "never", None), (TOPIC, topic, ["flush.ms"]), (77, "x", None))
    peer.ask(DESCRIBE, version, mixed, "good and bad")


BROKER_SOME = [
    "message.max.bytes",
    "log.retention.ms",
    "log.retention.hours",
    "num.partitions",
    "auto.create.topics.enable",
    "log.segment.bytes",
    "compression.type",
    "log.cleaner.threads",
    "max.connections",
    "log.cleanup.policy",
    "no.such.option",
]


@case(DESCRIBE)
def of_brokers(peer: Peer, version: int) -> None:
    peer.ask(DESCRIBE, version, about((BROKER, "1", BROKER_SOME)), "some")
    peer.ask(
        DESCRIBE, version, about((BROKER, "1", BROKER_SOME), include_synonyms=True), "synonyms"
    )
    peer.ask(DESCRIBE, version, about((BROKER, "", None)), "the default of all brokers")
    peer.ask(DESCRIBE, version, about((BROKER, "1", ["no.such.option"])), "unknown")


def settings(version: int, api: str, kind: int, name: str, *changes: tuple[object, ...]) -> Fields:
    """`(name, value)` for AlterConfigs, `(name, value, operation)` for the incremental one."""
    items = []
    for change in changes:
        item: Fields = {"name": change[0], "value": change[1]}
        if api == INCREMENTAL:
            item["config_operation"] = change[2] if len(change) > 2 else SET
        items.append(item)
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": items}]}


def described(peer: Peer, topic: str, label: str = "now") -> None:
    """What is set on the topic itself, once the change has come through."""
    fields = about((TOPIC, topic, None))
    peer.settle()
    answer = peer.quietly(DESCRIBE, 4, fields)
    own = [
        (x["name"], x["value"]) for x in answer["results"][0]["configs"] if x["config_source"] == 1
    ]
    peer.note(label, sorted(own))


def succeeded(answer: Fields) -> bool:
    return not any(each["error_code"] for each in answer.get("responses", [{"error_code": -1}]))


for _api in (ALTER, INCREMENTAL):

    @case(_api)
    def altered(peer: Peer, version: int, api: str = _api) -> None:
        topic = peer.create_topic(configs={"flush.ms": "77"})

        def ask(label: str, *changes: tuple[object, ...]) -> None:
            answer = peer.ask(api, version, settings(version, api, TOPIC, topic, *changes), label)
            if succeeded(answer):
                described(peer, topic)

        ask("one", ("retention.ms", "5000"))
        ask("two", ("retention.ms", "6000"), ("cleanup.policy", "compact,delete"))
        ask("unknown", ("no.such", "1"))
        ask("bad number", ("retention.ms", "soon"))
        ask("bad choice", ("cleanup.policy", "never"))
        ask("bad range", ("segment.bytes", "3"))
        ask("null", ("retention.ms", None))
        ask("empty value", ("retention.ms", ""))
        ask("empty name", ("", "1"))
        ask("nothing")
        ask("one good, one bad", ("retention.ms", "1"), ("segment.bytes", "x"))
        ask("a name twice", ("retention.ms", "1"), ("retention.ms", "2"))

    @case(_api)
    def alter_mistakes(peer: Peer, version: int, api: str = _api) -> None:
        change = ("retention.ms", "5000")
        for name in ("never", "", "a/b", ".."):
            fields = settings(version, api, TOPIC, name, change)
            peer.ask(api, version, fields, f"topic {name!r}")
        for name in ("7", "-1", "one"):
            fields = settings(version, api, BROKER, name, ("log.retention.ms", "5000"))
            peer.ask(api, version, fields, f"broker {name!r}")
        for kind in (0, 1, 3, 64, 127, -1):
            fields = settings(version, api, kind, "x", change)
            peer.ask(api, version, fields, f"type {kind}")
        topic = peer.create_topic()
        good = settings(version, api, TOPIC, topic, change)["resources"]
        bad = settings(version, api, TOPIC, "never", change)["resources"]
        peer.ask(api, version, {"resources": bad + good}, "good and bad")

    @case(_api)
    def alter_only_validated(peer: Peer, version: int, api: str = _api) -> None:
        topic = peer.create_topic()
        for label, change in (
            ("good", ("retention.ms", "5000")),
            ("bad", ("retention.ms", "soon")),
            ("unknown", ("no.such", "1")),
        ):
            fields = settings(version, api, TOPIC, topic, change) | {"validate_only": True}
            peer.ask(api, version, fields, label)
        described(peer, topic)


@case(INCREMENTAL)
def lists_and_removals(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"cleanup.policy": "delete", "retention.ms": "5"})

    def ask(label: str, *changes: tuple[object, ...]) -> None:
        peer.ask(
            INCREMENTAL, version, settings(version, INCREMENTAL, TOPIC, topic, *changes), label
        )
        described(peer, topic)

    ask("append", ("cleanup.policy", "compact", APPEND))
    ask("append what is there", ("cleanup.policy", "compact", APPEND))
    ask("subtract", ("cleanup.policy", "delete", SUBTRACT))
    ask("subtract what is not there", ("cleanup.policy", "delete", SUBTRACT))
    ask("subtract the last", ("cleanup.policy", "compact", SUBTRACT))
    ask("append a bad one", ("cleanup.policy", "never", APPEND))
    ask("append to a number", ("retention.ms", "5", APPEND))
    ask("subtract from a number", ("retention.ms", "5", SUBTRACT))
    ask("remove", ("retention.ms", None, REMOVE))
    ask("remove with a value", ("cleanup.policy", "x", REMOVE))
    ask("remove what is not set", ("flush.ms", None, REMOVE))
    ask("remove the unknown", ("no.such", None, REMOVE))
    ask("set to null", ("retention.ms", None, SET))
    ask("append null", ("cleanup.policy", None, APPEND))


@case(INCREMENTAL)
def resource_twice(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    one = settings(version, INCREMENTAL, TOPIC, topic, ("retention.ms", "1"))["resources"]
    peer.ask(INCREMENTAL, version, {"resources": one + one})


@case(INCREMENTAL)
def takes_effect_at_once(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    large = batch([Record(value=b"x" * 500)])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": large}]}]
    produce = {"acks": 1, "timeout_ms": 5000, "topic_data": data}
    peer.ask("Produce", 7, produce, "before")
    limit = settings(version, INCREMENTAL, TOPIC, topic, ("max.message.bytes", "200"))
    peer.ask(INCREMENTAL, version, limit)
    peer.settle()
    peer.ask("Produce", 7, produce, "after")


@case(INCREMENTAL)
def brokers_changed(peer: Peer, version: int) -> None:
    def ask(label: str, name: str, *changes: tuple[object, ...]) -> None:
        fields = settings(version, INCREMENTAL, BROKER, name, *changes)
        peer.ask(INCREMENTAL, version, fields | {"validate_only": True}, label)

    for name in ("1", ""):
        ask("dynamic", name, ("log.retention.ms", "500000"))
        ask("bad value", name, ("log.retention.ms", "soon"))
        ask("read only", name, ("node.id", "5"))
        ask("read only too", name, ("log.dirs", "elsewhere"))
        ask("unknown", name, ("no.such.option", "5"))
        ask("remove", name, ("log.retention.ms", None, REMOVE))
        ask("append to a list", name, ("log.cleanup.policy", "compact", APPEND))
        ask("append to a number", name, ("log.retention.ms", "5", APPEND))
        for kind in ("consumer", "share", "streams"):
            ask("beyond its bound", name, (f"group.{kind}.assignment.interval.ms", "15001"))
            ask("at its bound", name, (f"group.{kind}.assignment.interval.ms", "15000"))


@case(LIST)
def resources(peer: Peer, version: int) -> None:
    peer.create_topic()
    for kinds in (
        [],
        [TOPIC],
        [BROKER],
        [LOGGER],
        [CLIENT_METRICS],
        [GROUP],
        [0],
        [77],
        [TOPIC, 77],
    ):
        if version >= 1 or not kinds:
            peer.ask_for_all(LIST, version, {"resource_types": kinds}, "config_resources")
    if version >= 1:
        peer.ask(LIST, version, {"resource_types": [BROKER]}, "brokers whole")


def described_group(peer: Peer, group: str, version: int = 4, label: str = "now") -> None:
    """All configs of the group, once the change has come through."""
    peer.settle()
    peer.ask(DESCRIBE, version, about((GROUP, group, None), include_synonyms=True), label)


GROUP_MISTAKES: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("no.such", "1"),),
    (("consumer.session.timeout.ms", "x"), ("no.such", "1")),
    (("consumer.session.timeout.ms", ""),),
    (("consumer.session.timeout.ms", None),),
    (("consumer.session.timeout.ms", "0"),),
    (("consumer.session.timeout.ms", "1"),),
    (("consumer.session.timeout.ms", "60001"), ("consumer.heartbeat.interval.ms", "1")),
    (("consumer.assignment.interval.ms", "15001"), ("share.heartbeat.interval.ms", "4999")),
    (("share.record.lock.duration.ms", "14999"), ("share.delivery.count.limit", "11")),
    (("share.delivery.count.limit", "1"), ("share.partition.max.record.locks", "9")),
    (("share.partition.max.record.locks", "4001"),),
    (("share.auto.offset.reset", "never"),),
    (("share.auto.offset.reset", "by_duration:P"),),
    (("share.auto.offset.reset", "by_duration:-PT1S"),),
    (("share.auto.offset.reset", "by_duration:PT1M-61S"),),
    (("share.isolation.level", "READ_COMMITTED"),),
    (("share.renew.acknowledge.enable", "1"),),
    (("streams.num.standby.replicas", "3"), ("streams.assignment.interval.ms", "15001")),
    (("streams.session.timeout.ms", "44999"),),
    (("streams.initial.rebalance.delay.ms", "-1"),),
)
GROUP_VALUES = (
    (("consumer.session.timeout.ms", " 50000 "), ("share.renew.acknowledge.enable", "False")),
    (("share.auto.offset.reset", "by_duration:pt1h-59m"), ("streams.num.standby.replicas", "2")),
    (("share.auto.offset.reset", "by_duration:+P1DT0,5S"),),
    (("share.isolation.level", "read_committed"), ("consumer.assignment.interval.ms", "0")),
)

for _api in (ALTER, INCREMENTAL):

    @case(_api)
    def groups_altered(peer: Peer, version: int, api: str = _api) -> None:
        group = peer.name("group")

        def ask(label: str, name: str, *changes: tuple[object, ...]) -> None:
            peer.ask(api, version, settings(version, api, GROUP, name, *changes), label)

        for changes in GROUP_VALUES:
            ask(f"{changes}", group, *changes)
            described_group(peer, group)
        for mistake in GROUP_MISTAKES:
            ask(f"{mistake}", group, *mistake)
        ask("no name", "", ("consumer.session.timeout.ms", "50000"))
        odd = peer.name("a/b/../ü%2F")
        ask("an odd name", odd, ("consumer.session.timeout.ms", "50000"))
        described_group(peer, odd, label="of an odd name")
        ask("nothing", group)
        described_group(peer, group, label="nothing")


@case(INCREMENTAL)
def group_operations(peer: Peer, version: int) -> None:
    group = peer.name("group")

    def ask(label: str, *changes: tuple[object, ...]) -> None:
        peer.ask(
            INCREMENTAL, version, settings(version, INCREMENTAL, GROUP, group, *changes), label
        )

    ask(
        "set", ("consumer.session.timeout.ms", "50000"), ("share.isolation.level", "read_committed")
    )
    ask("append", ("consumer.session.timeout.ms", "5", APPEND))
    ask("subtract", ("consumer.session.timeout.ms", "5", SUBTRACT))
    ask("remove the unknown", ("no.such", None, REMOVE))
    ask("remove", ("consumer.session.timeout.ms", None, REMOVE))
    described_group(peer, group)
    ask("remove the last", ("share.isolation.level", None, REMOVE))
    described_group(peer, group, label="none")


@case(LIST)
def groups_listed(peer: Peer, version: int) -> None:
    for stem in ("one", "two"):
        fields = settings(
            1, INCREMENTAL, GROUP, peer.name(stem), ("share.delivery.count.limit", "3")
        )
        peer.ask(INCREMENTAL, 1, fields)
    peer.settle()
    if version >= 1:
        for kinds in ([GROUP], [GROUP, TOPIC], []):
            peer.ask_for_all(LIST, version, {"resource_types": kinds}, "config_resources")
    fields = settings(
        1, INCREMENTAL, GROUP, peer.name("one"), ("share.delivery.count.limit", None, REMOVE)
    )
    peer.ask(INCREMENTAL, 1, fields)
    peer.settle()
    if version >= 1:
        peer.ask_for_all(LIST, version, {"resource_types": [GROUP]}, "config_resources")
