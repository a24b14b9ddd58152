"""Record golden vectors: `python -m tests.wire.record_vectors` runs real clients against Apache
Kafka.

Each client talks to Kafka through a proxy that notes every frame. From what went by, the first of
each API and version is kept: the clients' requests in a file for each client, Kafka's answers in
one of their own. The bytes are new in each recording (ids, ports, times); read the diff before
you commit it.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ottla.wire.apis import API
from ottla.wire.header import read_request_header
from ottla.wire.malformed import MalformedMessage
from tests import needs
from tests.apache import java
from tests.apache.kafka import ApacheKafka
from tests.wire import vectors
from tests.wire.vectors import Vector

KAFKA = "Apache Kafka 4.3.1"
FRAME_BYTES_MAX = 2600  # larger ones say nothing new and fill the file


class Behind(ApacheKafka):
    """A Kafka that tells its clients to come through the proxy."""

    advertised_port = 0

    def _properties(self) -> dict[str, str]:
        address = f"PLAINTEXT://127.0.0.1:{self.advertised_port}"
        return super()._properties() | {"advertised.listeners": address}


class Proxy:
    """Passes bytes on, and notes requests with their responses."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = 0
        self.client = ""
        self.seen: list[tuple[str, bytes, bytes]] = []

    def serve(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            waiting: dict[int, tuple[str, bytes]] = {}

            def requested(frame: bytes, waiting: dict[int, tuple[str, bytes]] = waiting) -> None:
                waiting[struct.unpack_from(">i", frame, 4)[0]] = (self.client, frame)

            def answered(frame: bytes, waiting: dict[int, tuple[str, bytes]] = waiting) -> None:
                client, request = waiting.pop(struct.unpack_from(">i", frame)[0])
                self.seen.append((client, request, frame))

            for source, sink, note in ((near, far, requested), (far, near, answered)):
                threading.Thread(target=pump, args=(source, sink, note), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket, note: Callable[[bytes], None]) -> None:
    held = b""
    try:
        while piece := source.recv(65536):
            held += piece
            while len(held) >= 4 and len(held) >= (end := 4 + struct.unpack_from(">i", held)[0]):
                note(held[4:end])
                sink.sendall(held[:end])
                held = held[end:]
    except OSError:
        pass
    for side in (source, sink):
        side.close()


def run_confluent(bootstrap: str) -> None:
    """librdkafka by its Python face: every compression, idempotence, a group, the admin client."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka import admin as a

    admin = a.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([a.NewTopic("confluent", 2, 1)])["confluent"].result()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = {"bootstrap.servers": bootstrap, "compression.type": codec}
        producer = Producer(options | {"enable.idempotence": codec == "none"})
        for number in range(3):
            producer.produce("confluent", b"value %d " % number * 20, b"key", headers={"h": b"1"})
        producer.flush()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "confluent"})
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "confluent",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["confluent"])
    while not consumer.poll(1):
        pass
    producer.begin_transaction()
    producer.produce("confluent", b"in a transaction")
    position = [TopicPartition("confluent", 0, 3)]
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.commit(offsets=position, asynchronous=False)
    consumer.committed([TopicPartition("confluent", 0)])
    consumer.offsets_for_times([TopicPartition("confluent", 0, 1000)])
    consumer.close()
    resource = a.ConfigResource(a.ConfigResource.Type.TOPIC, "confluent")
    admin.describe_configs([resource])[resource].result()
    entry = a.ConfigEntry("retention.ms", "1000", incremental_operation=a.AlterConfigOpType.SET)
    resource = a.ConfigResource(
        a.ConfigResource.Type.TOPIC, "confluent", incremental_configs=[entry]
    )
    admin.incremental_alter_configs([resource])[resource].result()
    futures = [
        *admin.create_partitions([a.NewPartitions("confluent", 3)]).values(),
        *admin.delete_records([TopicPartition("confluent", 0, 1)]).values(),
        admin.list_consumer_groups(),
        *admin.describe_consumer_groups(["confluent"]).values(),
        admin.describe_cluster(),
        *admin.delete_consumer_groups(["confluent"]).values(),
        *admin.delete_topics(["confluent"]).values(),
    ]
    for future in futures:
        try:
            future.result()
        except KafkaException:
            pass


def run_kafka_python(bootstrap: str) -> None:
    """kafka-python: pure Python, newest versions."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("kafka-python", 1, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    producer.send("kafka-python", b"value", key=b"key", headers=[("h", b"1")]).get(10)
    producer.close()
    partition = TopicPartition("kafka-python", 0)
    consumer = KafkaConsumer(
        "kafka-python",
        bootstrap_servers=bootstrap,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=4000,
    )
    for _ in consumer:
        break
    consumer.commit()
    consumer.committed(partition)
    consumer.offsets_for_times({partition: 1000})
    consumer.beginning_offsets([partition])
    consumer.close()
    admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "kafka-python")])
    for attempt in (
        lambda: admin.describe_cluster(),
        lambda: admin.list_groups(),
        lambda: admin.describe_groups(["kafka-python"]),
        lambda: admin.describe_log_dirs(),
        lambda: admin.delete_groups(["kafka-python"]),
        lambda: admin.delete_topics(["kafka-python"]),
    ):
        try:
            attempt()
        except Exception as problem:
            print(f"kafka-python: {problem!r}")
    admin.close()


def run_aiokafka(bootstrap: str) -> None:
    """aiokafka: the lowest versions that any client still sends."""
    asyncio.run(use_aiokafka(bootstrap))


async def use_aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.structs import TopicPartition

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("aiokafka", 1, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("aiokafka", b"value", key=b"key")
        offsets = {TopicPartition("aiokafka", 0): 1}
        await producer.send_offsets_to_transaction(offsets, "aiokafka")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "aiokafka",
        bootstrap_servers=bootstrap,
        group_id="aiokafka-2",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    await consumer.getone()
    await consumer.commit()
    await consumer.committed(TopicPartition("aiokafka", 0))
    await consumer.offsets_for_times({TopicPartition("aiokafka", 0): 1000})
    await consumer.stop()
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups(["aiokafka-2"])
    await admin.delete_topics(["aiokafka"])
    await admin.close()


def run_kcat(bootstrap: str) -> None:
    """kcat: librdkafka as Debian ships it, often an older one."""
    kcat = [needs.kcat(), "-b", bootstrap]
    for arguments in (["-P", "-t", "kcat", "-z", "snappy"], ["-L", "-t", "kcat"]):
        subprocess.run([*kcat, *arguments], input=b"value\n", check=True, capture_output=True)
    consume = ["-C", "-t", "kcat", "-p", "0", "-o", "beginning", "-c", "1"]
    subprocess.run([*kcat, *consume], check=True, capture_output=True)
    subprocess.run([*kcat, "-Q", "-t", "kcat:0:1000"], check=True, capture_output=True)


def run_java(bootstrap: str) -> None:
    """Kafka's own tools: the Java clients, which always speak the newest version."""
    server = ("--bootstrap-server", bootstrap)
    producer = ("--producer-props", f"bootstrap.servers={bootstrap}")
    topic = ("--topic", "java")
    performance = (*topic, "--num-records", "3", "--record-size", "20", "--throughput", "-1")
    retention = ("--entity-type", "topics", "--entity-name", "java", "--add-config")
    for tool, *arguments in (
        ("TopicCommand", *server, "--create", *topic, "--partitions", "2"),
        ("TopicCommand", *server, "--describe", *topic),
        ("TopicCommand", *server, "--alter", *topic, "--partitions", "3"),
        ("ConfigCommand", *server, "--alter", *retention, "retention.ms=100000"),
        *(
            ("ProducerPerformance", *performance, *producer, f"compression.type={codec}")
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ),
        ("ProducerPerformance", *performance, *producer, "--transactional-id", "java"),
        ("ConsumerPerformance", *server, *topic, "--num-records", "3", "--group", "java"),
        ("GetOffsetShell", *server, *topic, "--time", "max-timestamp"),
        ("consumer.group.ConsumerGroupCommand", *server, "--describe", "--group", "java"),
        ("consumer.group.ConsumerGroupCommand", *server, "--list"),
        ("LogDirsCommand", *server, "--describe", "--topic-list", "java"),
        ("TransactionsCommand", *server, "list"),
        ("TransactionsCommand", *server, "describe", "--transactional-id", "java"),
        ("TransactionsCommand", *server, "describe-producers", *topic, "--partition", "0"),
        ("FeatureCommand", *server, "describe"),
        ("TopicCommand", *server, "--delete", *topic),
    ):
        folder = "org.apache.kafka.tools." if tool != "ConfigCommand" else "kafka.admin."
        try:
            java.run(folder + tool, *arguments)
        except AssertionError as problem:
            print(f"{tool}: {str(problem)[-1500:]}")


CLIENTS: dict[str, Callable[[str], None]] = {
    "confluent_kafka": run_confluent,
    "kafka_python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "kcat": run_kcat,
    "java": run_java,
}


def vector(part: str, request: bytes, frame: bytes, source: str) -> Vector | None:
    """A frame as a vector, or None if it is not of a declared API or too large to keep."""
    try:
        header = read_request_header(request)
    except MalformedMessage:
        return None
    api = API[header.api_key]
    if len(frame) > FRAME_BYTES_MAX or not api.serves(header.api_version):
        return None
    if (api.name, part) == ("DescribeLogDirs", "response"):
        return None  # it names a folder of this machine
    made = Vector(api, part, header.api_version, source, frame, "")
    return made._replace(meaning=vectors.describe(made.read()[0], header.api_version))


def first_of_each(found: list[Vector | None]) -> list[Vector]:
    """For each API and version the first; of those that carry records, one for each codec."""
    kept: dict[tuple[int, int, str, str], Vector] = {}
    for one in found:
        if one is not None:
            codecs = "+".join(re.findall(r"codec=(\w+)", one.meaning))
            kept.setdefault((one.api.key, one.version, one.part, codecs), one)
    return [kept[key] for key in sorted(kept)]


def sender(client: str, request: bytes) -> str:
    """Kafka sends some requests to itself; they come by on the same way."""
    own = (b"broker-1", b"AddPartitionsManager")
    return KAFKA if request[10:].startswith(own) else client


def main() -> None:
    proxy = Proxy()
    with tempfile.TemporaryDirectory() as folder:
        kafka = Behind(Path(folder), auto_create_topics_enable="true")
        kafka.advertised_port, proxy.target = proxy.port, kafka.port
        with kafka:
            proxy.serve()
            for name, run in CLIENTS.items():
                proxy.client = name
                run(f"127.0.0.1:{proxy.port}")
    vectors.FOLDER.mkdir(exist_ok=True)
    seen = [(sender(client, q), q, a) for client, q, a in proxy.seen]
    for name in CLIENTS:
        requests = [vector("request", q, q, c) for c, q, _ in seen if c == name]
        vectors.save(vectors.FOLDER / f"{name}.txt", first_of_each(requests))
    answers = [vector("response", q, a, KAFKA) for _, q, a in seen]
    answers += [vector("request", q, q, KAFKA) for c, q, _ in seen if c == KAFKA]
    vectors.save(vectors.FOLDER / "apache_kafka.txt", first_of_each(answers))


if __name__ == "__main__":
    main()
