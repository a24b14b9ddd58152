"""The order in which Kafka lists configs: that of a Java hash map of their names.

Kafka collects configs in a `HashMap` and answers in the order of its buckets, which depends on
nothing but the names and how many there are. Within a bucket the order is that in which Kafka
declares its options; ours agrees but for the buckets in `TIES` (Kafka 4.3.1's 340 broker options).
"""

from collections.abc import Iterable

LOAD_FACTOR = 0.75
CAPACITY_MIN = 16

TIES = (
    ("remote.log.metadata.manager.listener.name", "log.flush.interval.messages"),
    (
        "group.consumer.max.session.timeout.ms",
        "num.recovery.threads.per.data.dir",
        "ssl.keystore.type",
        "sasl.oauthbearer.assertion.private.key.file",
    ),
    (
        "metadata.log.segment.bytes",
        "fetch.purgatory.purge.interval.requests",
        "group.streams.num.standby.replicas",
        "group.share.record.lock.duration.ms",
    ),
    (
        "remote.log.manager.copy.quota.window.size.seconds",
        "log.flush.offset.checkpoint.interval.ms",
    ),
    ("replica.high.watermark.checkpoint.interval.ms", "replication.quota.window.size.seconds"),
    ("transaction.partition.verification.enable", "controller.quorum.auto.join.enable"),
    ("remote.log.manager.fetch.quota.window.size.seconds", "replica.selector.class"),
    (
        "early.start.listeners",
        "controlled.shutdown.enable",
        "share.coordinator.state.topic.compression.codec",
    ),
    ("remote.log.manager.copier.thread.pool.size", "socket.connection.setup.timeout.max.ms"),
    ("group.consumer.min.assignment.interval.ms", "log.cleaner.io.max.bytes.per.second"),
    (
        "remote.log.storage.manager.class.name",
        "socket.receive.buffer.bytes",
        "group.streams.initial.rebalance.delay.ms",
    ),
    ("producer.purgatory.purge.interval.requests", "controller.quorum.voters"),
    ("group.share.assignors", "metrics.sample.window.ms"),
    ("group.share.max.assignment.interval.ms", "controller.quota.window.num"),
    ("group.streams.session.timeout.ms", "metric.reporters", "sasl.oauthbearer.token.endpoint.url"),
    (
        "group.share.assignment.interval.ms",
        "log.preallocate",
        "sasl.kerberos.principal.to.local.rules",
    ),
    ("delete.topic.enable", "quota.window.size.seconds"),
    ("sasl.mechanism.controller.protocol", "group.share.max.record.lock.duration.ms"),
    ("log.cleaner.enable", "controller.quorum.fetch.timeout.ms"),
    ("remote.log.metadata.manager.impl.prefix", "controller.quota.window.size.seconds"),
    ("replica.fetch.backoff.ms", "group.share.delivery.count.limit", "kafka.metrics.reporters"),
    ("socket.connection.setup.timeout.ms", "listeners"),
    ("share.coordinator.threads", "sasl.server.max.receive.size", "security.providers"),
    ("compression.lz4.level", "log.roll.hours", "controller.quorum.fetch.max.bytes"),
    ("group.share.max.size", "controller.quorum.election.backoff.max.ms"),
)
_PLACES = {name: place for tie in TIES for place, name in enumerate(tie)}


def kafka_order(names: Iterable[str]) -> list[str]:
    """The names as Kafka lists them, given in the order in which they are declared."""
    declared = list(names)
    capacity = CAPACITY_MIN
    while len(declared) > capacity * LOAD_FACTOR:
        capacity *= 2
    return sorted(declared, key=lambda name: (bucket(name, capacity), _PLACES.get(name, -1)))


def bucket(name: str, capacity: int) -> int:
    """Where a Java HashMap of that capacity (a power of two) keeps the name."""
    code = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return (code ^ (code >> 16)) & (capacity - 1)
