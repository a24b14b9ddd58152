"""A script written for kafka-python changes its imports and runs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import kafka
import kafka.admin
import kafka.errors
import kafka.structs
import pytest

import ottla
import ottla.admin
import ottla.errors
import ottla.structs
from tests.client import compatibility

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from kafka import (
    ConsumerRebalanceListener, IsolationLevel, KafkaConsumer, KafkaProducer, JsonSerializer,
    OffsetAndMetadata, TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.structs import ConsumerGroupMetadata

server, topic = sys.argv[1:]
admin = KafkaAdminClient(bootstrap_servers=server, client_id="script")
admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=1)])
try:
    admin.create_topics([NewTopic(topic, 2, 1)])
except TopicAlreadyExistsError as error:
    print("there is one", error.errno, isinstance(error, KafkaError))

producer = KafkaProducer(
    bootstrap_servers=[server], acks="all", retries=3, linger_ms=2, compression_type="gzip",
    key_serializer=str.encode, value_serializer=lambda v: json.dumps(v).encode("utf-8"),
)
received = []
future = producer.send(topic, {"n": 0}, key="a", headers=[("h", b"1")], timestamp_ms=1000)
future.add_callback(lambda metadata: received.append(metadata.offset)).add_errback(received.append)
metadata = future.get(timeout=60)
print(metadata.topic == topic, metadata.partition, metadata.offset, metadata.timestamp)
for n in range(1, 10):
    producer.send(topic, key="a", value={"n": n})
producer.flush()
print(received, sorted(producer.partitions_for(topic)))
print(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]).keys())
producer.close()


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        if revoked:
            print("revoked", sorted(p.partition for p in revoked))

    def on_partitions_assigned(self, assigned):
        if assigned:
            print("assigned", sorted(p.partition for p in assigned))


consumer = KafkaConsumer(
    bootstrap_servers=server, group_id="group-" + topic, auto_offset_reset="earliest",
    enable_auto_commit=False, consumer_timeout_ms=2000, isolation_level="read_committed",
    value_deserializer=lambda m: json.loads(m.decode("utf-8")), max_poll_records=4,
)
consumer.subscribe([topic], listener=Listener())
seen = []
for message in consumer:
    seen.append((message.offset, message.key, message.value["n"], message.headers))
    if message.value["n"] == 9:
        break
print(seen)
place = TopicPartition(topic, message.partition)
print(consumer.position(place), consumer.committed(place), consumer.subscription() == {topic})
consumer.commit({place: OffsetAndMetadata(5, "half", -1)})
print(consumer.committed(place), consumer.end_offsets([place])[place])
found = consumer.offsets_for_times({place: 1000})[place]
print(found.offset, found.timestamp)
consumer.seek(place, 8)
print(sum(len(v) for v in consumer.poll(timeout_ms=60_000).values()))
consumer.pause(place)
print(len(consumer.paused()), consumer.poll(timeout_ms=50))
consumer.close()
offsets = admin.list_group_offsets("group-" + topic)
print(sorted(topic for topic in admin.list_topics() if topic == sys.argv[2]) == [topic])
admin.delete_topics([topic])
admin.close()
"""


def test_a_script_says_the_same_with_both(bootstrap: str, topic: str) -> None:
    """Produce, consume in a group, commit, seek, pause, create and delete: the same output."""
    said = {}
    for name in ("kafka", "ottla"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.replace("from kafka", f"from {name}"),
             bootstrap, f"{topic}-{name}"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr[-3000:]}"
        said[name] = done.stdout
    assert said["ottla"] == said["kafka"]
    assert said["ottla"].count("\n") >= 12


def test_the_names_of_its_package_are_here() -> None:
    """All that `from kafka import …` gives."""
    assert [name for name in kafka.__all__ if not hasattr(ottla, name)] == []
    assert [name for name in kafka.__all__ if name not in ottla.__all__] == []


@pytest.mark.parametrize("module", ["errors", "structs", "admin"])
def test_the_names_of_its_modules_are_here(module: str) -> None:
    """All classes of `kafka.errors`, `kafka.structs` and `kafka.admin`, or a line in SKIPPED.md."""
    theirs, ours = getattr(kafka, module), getattr(ottla, module)
    names = {
        name
        for name, found in inspect.getmembers(theirs, inspect.isclass)
        if not name.startswith("_") and found.__module__.startswith("kafka")
    }
    missing = {name for name in names if not hasattr(ours, name)}
    assert missing == compatibility.MODULES[module]
    text = (ROOT / "SKIPPED.md").read_text()
    assert [name for name in missing if f"`{name}`" not in text] == []
