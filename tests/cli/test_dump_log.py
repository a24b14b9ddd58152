"""kafka-dump-log.sh and `ottla log dump`: what is in the files, as Kafka's own tool says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.client.admin import Admin, ConfigResource, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.share.share_consumer import ShareConsumer
from ottla.client.share.structs import AcknowledgeType
from tests.cli.apache_tools import ApacheTools
from tests.cli.compare import kafka_script
from tests.cli.process import ottla
from tests.cli.state import SETTINGS
from tests.live import Server

RECORDS = 400
SHARES = "__share_group_state"
LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with indexes, snapshots, aborted transactions and internal topics."""
    directory = tmp_path_factory.mktemp("dump") / "data"
    with Server(directory, settings=SETTINGS) as server:
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            small = {"index.interval.bytes": "200", "segment.bytes": "1048576"}
            admin.create_topics([NewTopic("many", 1, topic_configs=small), NewTopic("text", 1)])
            admin.alter_group_offsets("group", {("many", 0): 7})  # type: ignore[dict-item]
        with Producer(
            bootstrap_servers=server.bootstrap, linger_ms=0, transactional_id="dumped"
        ) as producer:
            producer.init_transactions()
            for committed in (True, False, True):
                producer.begin_transaction()
                for i in range(RECORDS // 3):
                    producer.send("many", b"value %d" % i, b"key %d" % i, [("h", b"1")])
                    if i % 10 == 0:
                        producer.flush()
                producer.flush()
                if committed:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        with Producer(bootstrap_servers=server.bootstrap, compression_type="gzip") as producer:
            producer.send("text", "käse".encode(), None).get(60)
            producer.send("text", None, b"k").get(60)
        with_new_groups(server.bootstrap)
    return directory


def with_new_groups(bootstrap: str) -> None:
    """Groups of the new protocols that come, take partitions, say how far they are, and go."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id="modern",
        group_protocol="consumer",
        group_instance_id="static",
        auto_offset_reset="earliest",
    )
    consumer.subscribe(pattern="te.*")
    while not consumer.poll(timeout_ms=100):
        pass
    consumer.commit()
    consumer.close()
    with Admin(bootstrap_servers=bootstrap) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource("group", "sharing", configs)])
    with ShareConsumer(
        "text",
        bootstrap_servers=bootstrap,
        group_id="sharing",
        share_acknowledgement_mode="explicit",
    ) as sharing:
        for kind in (AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT):
            found = 0
            while found < 2:
                for record in sharing.poll(timeout_ms=100):
                    found += 1
                    sharing.acknowledge(record, kind)
            sharing.commit_sync()


@pytest.mark.apache
@pytest.mark.xdist_group("tools")
@pytest.mark.parametrize(
    "line",
    [
        "--files {many.log}",
        "--files {many.log} --deep-iteration",
        "--files {many.log} --print-data-log",
        "--files {many.log} --print-data-log --skip-record-metadata",
        "--files {many.log} --max-bytes 3000 --deep-iteration",
        "--files {many.index}",
        "--files {many.index} --max-message-size 10000",
        "--files {many.index},{many.timeindex} --index-sanity-check",
        "--files {many.timeindex}",
        "--files {many.timeindex} --verify-index-only",
        "--files {many.txnindex}",
        "--files {many.snapshot}",
        "--files {text.log} --print-data-log --key-decoder-class --value-decoder-class",
        "--files {text.log} --value-decoder-class org.apache.kafka.tools.api.StringDecoder",
        "--files {__consumer_offsets.log} --offsets-decoder",
        "--files {__transaction_state.log} --transaction-log-decoder",
        "--files {__share_group_state.log} --share-group-state-decoder",
    ],
)
def test_files_are_shown_as_kafkas_tool_shows_them(
    line: str, data: Path, apache_tools: ApacheTools
) -> None:
    """Every line on standard output is the same, for every kind of file and option."""
    words = []
    for word in line.split():
        for name in ("many", "text", "__consumer_offsets", "__transaction_state", SHARES):
            for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
                mark = f"{{{name}.{suffix}}}"
                if mark in word:
                    word = word.replace(mark, str(file_of(data, name, suffix)))
        words.append(word)
    theirs = apache_tools.run("kafka-dump-log.sh", *words)
    ours = kafka_script("kafka-dump-log.sh", *words)
    assert theirs.code == ours.code == 0, (theirs, ours)
    assert ours.out.splitlines() == theirs.out.splitlines()
    assert len(ours.out.splitlines()) > ("--verify-index-only" not in line)


def file_of(data: Path, topic: str, suffix: str) -> Path:
    found = sorted((data / f"{topic}-0").glob(f"*.{suffix}"))
    assert found, f"no .{suffix} in {topic}-0"
    return found[0]


def test_damage_is_reported(data: Path, tmp_path: Path) -> None:
    """A torn end, a wrong index and a gap are named with their places; the exit code is 1."""
    log = file_of(data, "many", "log").read_bytes()
    index = file_of(data, "many", "index").read_bytes()
    (tmp_path / LOG).write_bytes(log + b"torn")
    (tmp_path / LOG.replace(".log", ".index")).write_bytes(index[:4] + b"\0\0\0\1" + index[8:])
    ended = ottla("log", "dump", tmp_path)
    assert ended.code == 1, ended
    assert "Found 4 invalid bytes at the end of" in ended.out
    assert "Mismatches in :" in ended.errors


def test_a_whole_data_directory_is_shown(data: Path) -> None:
    """`ottla log dump DIR` finds the partitions, the checkpoints and decodes internal topics."""
    ended = ottla("log", "dump", data, "--batches")
    assert ended.code == 0, ended
    assert "cluster.id=" in ended.out
    assert "many-0" in ended.out
    ended = ottla("log", "dump", data / "__consumer_offsets-0", "--json")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert any('"group":"group"' in (row["key"] or "") for row in rows)
    ended = ottla("log", "dump", data / "__share_group_state-0", "--json")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert rows
    assert {json.loads(row["key"])["data"]["groupId"] for row in rows} == {"sharing"}
    assert ottla("log", "dump", data / "nothing").code == 1


def test_what_is_no_log_is_reported(tmp_path: Path) -> None:
    """A file of another kind, and a folder without logs: a sentence and exit code 1."""
    (tmp_path / "notes.txt").write_text("hello")
    for path, fact in (
        (tmp_path / "notes.txt", "is no file of a log"),
        (tmp_path, "nothing to show in"),
    ):
        ended = ottla("log", "dump", path)
        assert (ended.code, ended.out) == (1, "")
        assert ended.said(fact, "Try: a"), ended


def test_what_java_alone_can_do_is_refused(data: Path) -> None:
    """Decoders of one's own and records that are not written here: a sentence, not a guess."""
    path = str(file_of(data, "many", "log"))
    for words in (
        ["--value-decoder-class", "com.example.Mine"],
        ["--cluster-metadata-decoder"],
        ["--remote-log-metadata-decoder"],
    ):
        answer = kafka_script("kafka-dump-log.sh", "--files", path, *words)
        assert answer.code == 1
        assert "Try: " in answer.errors
