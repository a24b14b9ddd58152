"""A broker with something of everything for the tools to look at.

Topics with records, headers and configs of their own; a group without members, a group with two
that stay, the same in the new protocol, and of share groups; a finished, an aborted and an open
transaction. Times are fixed points of the last hour, so that a reset by time has one right answer.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from ottla.client.admin import Admin, ConfigResource, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.share.share_consumer import ShareConsumer
from ottla.client.structs import OffsetAndMetadata, TopicPartition

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
}
RECORDS = 30
PARTITIONS = 3
STEP_MS = 1000
HOUR_MS = 3_600_000
# Of the groups "live" and "modern".
MEMBERS = {"one": ["orders", "payments"], "two": ["orders"]}
SHARE_GROUPS = ("sharing", "parked", "own-a", "own-o")  # all but the first end up without members
NEW_SHARE_GROUPS = [f"{name}-{x}" for name in ("looking", "giving", "perf") for x in "ao"]


class State:
    """What is there, and who keeps it alive until `close`."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.began_ms = int(time.time()) * 1000 - HOUR_MS
        self.middle_ms = self.began_ms + RECORDS // 2 * STEP_MS
        self._stop = threading.Event()
        self._has_all = threading.Event()  # the first member of "modern"
        self._members: list[threading.Thread] = []
        self._open: Producer[bytes, bytes] | None = None
        self._make_topics()
        self._make_files()
        self._make_groups()
        self._make_transactions()

    @property
    def words(self) -> dict[str, str]:
        """What stands for what in a command line."""
        middle = datetime.fromtimestamp(self.middle_ms / 1000, UTC)
        return {
            "$MIDDLE_MS": str(self.middle_ms),
            "$MIDDLE": middle.strftime("%Y-%m-%dT%H:%M:%S.000"),
            "$B": self.bootstrap,
            "$T": str(self.folder),
        }

    def _make_topics(self) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic("orders", PARTITIONS, topic_configs={"retention.ms": "864000000"}),
                    NewTopic("payments", 2),
                    *(NewTopic(name, 1) for name in ("lines", "numbers", "committed")),
                    NewTopic("moving", 2),
                    *(NewTopic(f"config-{x}", 1) for x in "ao"),
                ]
            )
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for i in range(RECORDS):
                producer.send(
                    "orders",
                    b"v%d" % i,
                    b"k%d" % (i % 5) if i % 3 else None,
                    [("source", b"test")] if i % 2 else None,
                    partition=i % PARTITIONS,
                    timestamp_ms=self.began_ms + i * STEP_MS,
                )
            for i in range(8):
                key = b"key %d" % i if i % 2 else None
                headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
                value = "wört %d".encode() % i if i != 5 else None
                time_ms = self.began_ms + i
                producer.send("lines", value, key, headers[: i // 3], timestamp_ms=time_ms)
            for i in (7, -1):
                producer.send("numbers", i.to_bytes(4, "big", signed=True))

    def _make_files(self) -> None:
        files = {
            "client.properties": "client.id=tester\nrequest.timeout.ms=20000\n",
            "add.properties": "max.message.bytes=3000\n",
            "plan.csv": "orders,0,3\norders,1,4\n",
            "formatter.properties": "print.offset=true\nkey.separator=;\n",
            "del.json": plan([("orders", 0, 0), ("orders", 2, 0)]),
            "del3.json": plan([("orders", 0, 5000), ("orders", 0, -1)]),
            "elect.json": '{"partitions": [{"topic": "orders", "partition": 1}]}',
            "elect-twice.json": plan([("orders", 1, 0), ("orders", 1, 0)]),
            "del-a.json": plan([("config-a", 0, 0)]),
            "del-o.json": plan([("config-o", 0, 0)]),
            "move.json": json.dumps({"topics": [{"topic": "moving"}], "version": 1}),
            "move-none.json": json.dumps({"topics": [{"topic": "nope"}]}),
            "moved.json": moved([("moving", 0, [1]), ("moving", 1, [1])]),
            "moved-more.json": moved([("moving", 0, [1]), ("moving", 1, [1, 7])]),
            "moved-none.json": moved([("nope", 0, [1])]),
            "moved-dirs.json": moved([("moving", 0, [1])], log_dirs=["/nowhere"]),
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def _make_groups(self) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            offsets = {
                TopicPartition("orders", index): OffsetAndMetadata(8 + index, "note", 0)
                for index in range(PARTITIONS)
            }
            admin.alter_group_offsets("idle", offsets)
        ready = {
            (group, name): threading.Event() for group in ("live", "modern") for name in MEMBERS
        }
        for group, name in ready:
            member = threading.Thread(target=self._stay, args=(group, name, ready), daemon=True)
            member.start()
            self._members.append(member)
            # The assignor of the new protocol is sticky: had "two" come first, it would keep all
            # three partitions of `orders`.
            if (group, name) == ("modern", "one"):
                assert self._has_all.wait(60), "the first member has no partitions"
        self._make_share_groups()
        for named, event in ready.items():
            assert event.wait(60), f"member {named} has no partitions"

    def _make_share_groups(self) -> None:
        """All of `orders` is processed by groups of one member each."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            configs = {"share.auto.offset.reset": "earliest"}
            groups = [*SHARE_GROUPS, *NEW_SHARE_GROUPS]
            admin.alter_configs([ConfigResource("group", each, configs) for each in groups])
        for group in SHARE_GROUPS:
            consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
                "orders", bootstrap_servers=self.bootstrap, group_id=group, client_id="sharer"
            )
            found = 0
            while found < RECORDS:
                found += len(consumer.poll(timeout_ms=1000))
            consumer.commit_sync()
            if group == "sharing":
                self._sharing = consumer  # its heartbeats go on
            else:
                consumer.close()

    def _stay(self, group: str, name: str, ready: dict[tuple[str, str], threading.Event]) -> None:
        """Be a member until the end; ready when both share the partitions of `orders`."""
        alone = 5 if name == "one" else 3
        consumer = Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            group_protocol="classic" if group == "live" else "consumer",
            client_id=name,
            group_instance_id="static-2" if name == "two" else None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe(topics=MEMBERS[name])
        settled = 0
        while not self._stop.is_set():
            consumer.poll(timeout_ms=50)
            if group == "modern" and len(consumer.assignment()) == alone:
                self._has_all.set()
            settled = settled + 1 if 0 < len(consumer.assignment()) < alone else 0
            if settled > 5 and not ready[group, name].is_set():
                consumer.commit()
                ready[group, name].set()
        consumer.close()

    def _make_transactions(self) -> None:
        for name, committed in (("done", True), ("undone", False)):
            with Producer(bootstrap_servers=self.bootstrap, transactional_id=name) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("committed", name.encode())
                if committed:
                    producer.commit_transaction()
                else:
                    producer.flush()
                    producer.abort_transaction()
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            producer.send("committed", b"plain").get(60)
        self._open = Producer(
            bootstrap_servers=self.bootstrap,
            transactional_id="open",
            transaction_timeout_ms=600_000,
        )
        self._open.init_transactions()
        self._open.begin_transaction()
        self._open.send("payments", b"pending", partition=1)
        self._open.flush()

    def close(self) -> None:
        self._stop.set()
        for member in self._members:
            member.join(60)
        self._sharing.close()
        if self._open is not None:
            self._open.abort_transaction()
            self._open.close()


def plan(offsets: list[tuple[str, int, int]]) -> str:
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in offsets]
    return json.dumps({"partitions": partitions, "version": 1})


def moved(rows: list[tuple[str, int, list[int]]], **more: object) -> str:
    """A file for kafka-reassign-partitions.sh."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas, **more}
        for topic, index, replicas in rows
    ]
    return json.dumps({"partitions": partitions, "version": 1})
