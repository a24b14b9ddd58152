"""The scripts that write: console producer, performance tools, transactions, storage, start."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.cli.kafka_scripts import server_stop
from ottla.cli.kafka_scripts.server_start import server_arguments
from ottla.client.admin import Admin, ConfigResource, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.structs import ConsumerRecord, TopicPartition
from tests.cli.compare import kafka_script
from tests.cli.state import State
from tests.live import free_port

pytestmark = pytest.mark.xdist_group("tools")
numbers = itertools.count(1)


@pytest.fixture
def topic(state: State) -> str:
    """A topic of one partition that nobody else uses."""
    name = f"written-{next(numbers)}"
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
    return name


def run(line: str, state: State, topic: str = "", text: str = "") -> tuple[int, str, str]:
    for name, value in state.words.items():
        line = line.replace(name, value)
    tool, *words = shlex.split(line.replace("TOPIC", topic))
    return kafka_script(tool, *words, text=text)


def records(state: State, topic: str) -> list[ConsumerRecord]:
    place = TopicPartition(topic, 0)
    consumer = Consumer(bootstrap_servers=state.bootstrap, isolation_level="read_committed")
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        found: list[ConsumerRecord] = []
        while consumer.position(place) < end:  # type: ignore[operator]
            found += consumer.poll(timeout_ms=500).get(place, [])
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ("", "a\nb c\n\nä", [(None, b"a"), (None, b"b c"), (None, b""), (None, "ä".encode())]),
        ("--sync --reader-property parse.key=true", "k\tv\n", [(b"k", b"v")]),
        ("--property parse.key=true --property key.separator=:", "k:v:w\n", [(b"k", b"v:w")]),
        ("--reader-property null.marker=NULL --reader-property parse.key=true",
         "NULL\tv\nk\tNULL\n", [(None, b"v"), (b"k", None)]),
        ("--reader-property parse.key=true --reader-property ignore.error=true", "nokey\n",
         [(None, b"nokey")]),
        ("--reader-config $T/reader.properties", "k;v\n", [(b"k", b"v")]),
        ("--line-reader org.apache.kafka.tools.LineMessageReader", "x\n", [(None, b"x")]),
        ("--compression-codec --batch-size 1000 --timeout 5", "x\n", [(None, b"x")]),
        ("--compression-codec zstd --max-partition-memory-bytes 900", "x\n", [(None, b"x")]),
        ("--request-required-acks 1 --request-timeout-ms 3000 --retry-backoff-ms 50", "x\n",
         [(None, b"x")]),
        ("--max-block-ms 5000 --max-memory-bytes 1000000 --socket-buffer-size 50000", "x\n",
         [(None, b"x")]),
        ("--message-send-max-retries 2 --metadata-expiry-ms 1000", "x\n", [(None, b"x")]),
        ("--command-property linger.ms=3 --command-config $T/client.properties", "x\n",
         [(None, b"x")]),
        ("--producer-property acks=1 --producer.config $T/client.properties", "x\n",
         [(None, b"x")]),
    ],
)  # fmt: skip
def test_lines_become_records(
    options: str,
    text: str,
    expected: list[tuple[bytes | None, bytes | None]],
    state: State,
    topic: str,
) -> None:
    """kafka-console-producer.sh sends each line, split as its properties say."""
    (state.folder / "reader.properties").write_text("parse.key=true\nkey.separator=;\n")
    line = f"kafka-console-producer.sh --bootstrap-server $B --topic TOPIC {options}"
    code, out, errors = run(line, state, topic, text)
    assert (code, out, errors) == (0, "", "")
    assert [(each.key, each.value) for each in records(state, topic)] == expected


def test_headers_and_the_older_name_of_the_server(state: State, topic: str) -> None:
    """Headers come first in a line; --broker-list is --bootstrap-server."""
    line = "kafka-console-producer.sh --broker-list $B --topic TOPIC"
    line += " --reader-property parse.headers=true --reader-property null.marker=-"
    assert run(line, state, topic, "a:1,b:-\tvalue\n").code == 0  # type: ignore[attr-defined]
    found = records(state, topic)
    assert [(each.value, each.headers) for each in found] == [
        (b"value", [("a", b"1"), ("b", None)])
    ]


@pytest.mark.parametrize(
    ("options", "text", "fact"),
    [
        ("--reader-property parse.key=true", "nokey\n", "No key separator found on line number 1"),
        ("--reader-property parse.headers=true", "x\n", "No headers delimiter found"),
        ("--line-reader com.example.Mine", "", "classes of Java do not run"),
        ("--reader-property headers.separator=:", "", "may not be equal"),
        ("--compression-codec best", "", "compression"),
    ],
)
def test_a_line_that_does_not_fit_is_named(
    options: str, text: str, fact: str, state: State, topic: str
) -> None:
    """The line's number and what is missing; exit code 1."""
    line = f"kafka-console-producer.sh --bootstrap-server $B --topic TOPIC {options}"
    code, _, errors = run(line, state, topic, text)
    assert code == 1
    assert fact in errors


def test_the_consumer_ends_with_an_event_for_system_tests(state: State) -> None:
    """--enable-systest-events prints shutdown_complete."""
    line = "kafka-console-consumer.sh --bootstrap-server $B --topic lines --partition 0"
    answer = run(f"{line} --from-beginning --max-messages 1 --enable-systest-events", state)
    assert answer[1].splitlines()[-1] == "shutdown_complete"


MONOTONIC = (
    "--num-records 300 --payload-monotonic --throughput 1000 --warmup-records 100 "
    "--producer-props bootstrap.servers=$B linger.ms=0"
)
FROM_FILE = (
    "--num-records 200 --payload-file $T/payloads --payload-delimiter ';' --throughput -1 "
    "--command-property acks=1 --command-config $T/client.properties --bootstrap-server $B"
)
TRANSACTIONAL = (
    "--num-records 200 --record-size 9 --throughput -1 --transactional-id perf "
    "--transaction-duration-ms 50 --producer.config $T/client.properties --bootstrap-server $B"
)
LATENCY = (
    "kafka-e2e-latency.sh --bootstrap-server $B --topic TOPIC --num-records 5 --producer-acks 1 "
    "--record-size 20 --record-key-size 4 --num-headers 2 --record-header-key-size 3 "
    "--record-header-size 5 --command-config $T/client.properties"
)
ABORT = (
    "abort --topic TOPIC --partition 0 --producer-id {id} --producer-epoch {epoch} "
    "--coordinator-epoch {coordinator}"
)
PRODUCED = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency(, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th)?\."
)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("--num-records 500 --record-size 50 --throughput -1 --bootstrap-server $B", ["500"]),
        (MONOTONIC, ["300", "200"]),
        (FROM_FILE, ["200"]),
        (TRANSACTIONAL, ["200"]),
    ],
)
def test_a_producer_is_measured(options: str, lines: list[str], state: State, topic: str) -> None:
    """kafka-producer-perf-test.sh sends all records and prints Kafka's line."""
    (state.folder / "payloads").write_text("one;two;three")
    code, out, errors = run(f"kafka-producer-perf-test.sh --topic TOPIC {options}", state, topic)
    assert code == 0, errors
    found = [PRODUCED.fullmatch(line) for line in out.splitlines()]
    assert [match and match[1] for match in found] == lines, out
    expected = int(lines[0])
    assert len(records(state, topic)) == expected


def test_a_producer_reports_while_it_runs(state: State, topic: str) -> None:
    """--reporting-interval sets how often; --print-metrics prints what the producer counted."""
    line = "kafka-producer-perf-test.sh --topic TOPIC --num-records 600 --record-size 10"
    line += " --throughput 1500 --reporting-interval 100 --print-metrics --bootstrap-server $B"
    code, out, _ = run(line, state, topic)
    matches = [PRODUCED.fullmatch(each) for each in out.splitlines()]
    assert code == 0
    assert sum(match is not None and match[2] is None for match in matches) >= 2
    assert any(match is None for match in matches), "no metrics"


HEADER = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def test_a_consumer_is_measured(state: State) -> None:
    """kafka-consumer-perf-test.sh prints Kafka's header and one row of ten numbers."""
    line = "kafka-consumer-perf-test.sh --bootstrap-server $B --topic lines --num-records 8"
    line += " --fetch-size 10000 --socket-buffer-size 60000 --command-property max.poll.records=3"
    code, out, errors = run(f"{line} --command-config $T/client.properties", state)
    assert code == 0, errors
    header, row = out.splitlines()
    assert header == f"start.time, end.time, {HEADER}"
    cells = row.split(", ")
    assert len(cells) == 10
    assert cells[4] == "8"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", cells[0])


def test_a_consumer_that_runs_dry_says_so(state: State) -> None:
    """--timeout ends it with a warning; the other options are taken."""
    line = "kafka-consumer-perf-test.sh --bootstrap-server $B --include lin.* --messages 99"
    line += " --timeout 600 --hide-header --show-detailed-stats --reporting-interval 100"
    line += " --group perf --from-latest --consumer.config $T/client.properties --print-metrics"
    code, out, _ = run(f"{line} --date-format yyyy/MM/dd", state)
    assert code == 0
    assert "WARNING: Exiting before consuming the expected number of records" in out
    assert re.search(r"^\d{4}/\d\d/\d\d, 0, ", out, re.MULTILINE)
    assert HEADER not in out


def test_share_consumers_report_while_they_run(state: State) -> None:
    """Two threads process what there is; details, dates and counts are shown as was asked."""
    line = "kafka-share-consumer-perf-test.sh --bootstrap-server $B --topic lines --num-records 8"
    line += " --group perf-o --timeout 60000 --threads 2 --fetch-size 10000 --print-metrics"
    line += " --socket-buffer-size 60000 --show-detailed-stats --reporting-interval 0"
    line += " --date-format yyyy/MM --consumer.config $T/client.properties"
    line += " --command-property max.poll.records=2 --command-config $T/client.properties"
    code, out, errors = run(line, state)
    assert code == 0, errors
    assert re.search(r"^\d{4}/\d\d, .* for share consumer [12]$", out, re.MULTILINE), out
    counts = [int(each) for each in re.findall(r"^tester-[12] records (\d+)", out, re.MULTILINE)]
    assert (len(counts), sum(counts)) == (2, 8)


def test_a_share_consumer_rejects_what_it_cannot_show(state: State, topic: str) -> None:
    """--reject-message-on-error goes on; without it the tool ends with 1 and keeps nothing."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource("group", "strict", configs)])
    with Producer(bootstrap_servers=state.bootstrap) as producer:
        producer.send(topic, b"abc")
        producer.send(topic, (7).to_bytes(4, "big"))
    line = "kafka-console-share-consumer.sh --bootstrap-server $B --topic TOPIC --group strict"
    line += " --key-deserializer org.apache.kafka.common.serialization.StringDeserializer"
    line += " --value-deserializer org.apache.kafka.common.serialization.IntegerDeserializer"
    code, out, errors = run(line, state, topic)
    assert (code, out) == (1, "")
    assert "offset 0" in errors
    line += " --reject-message-on-error --max-messages 2 --timeout-ms 30000"
    line += " --formatter-config $T/formatter.properties --enable-systest-events"
    line += " --formatter org.apache.kafka.tools.consumer.DefaultMessageFormatter"
    code, out, errors = run(line, state, topic)
    assert (code, out.splitlines()) == (0, ["Offset:1;7", "shutdown_complete"]), errors


@pytest.mark.parametrize(
    "line",
    ["kafka-e2e-latency.sh $B TOPIC 5 all 20", LATENCY],
)
def test_the_latency_of_a_record_is_measured(line: str, state: State, topic: str) -> None:
    """kafka-e2e-latency.sh: average and percentiles, with names or without."""
    code, out, errors = run(line, state, topic)
    assert code == 0, errors
    assert re.search(r"^Avg latency: [\d.]+ ms$", out, re.MULTILINE)
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+$", out, re.MULTILINE)
    assert len(records(state, topic)) == 5


def test_transactions_are_ended_by_offset_by_numbers_and_by_id(state: State, topic: str) -> None:
    """abort finds a hanging transaction or takes its numbers; force-terminate goes by the id."""
    from ottla.client.producer import Producer

    for number, words in enumerate(
        (
            "abort --topic TOPIC --partition 0 --start-offset {offset}",
            ABORT,
            "forceTerminateTransaction --transactionalId hang-2",
        )
    ):
        producer: Producer[bytes, bytes] = Producer(
            bootstrap_servers=state.bootstrap, transactional_id=f"hang-{number}"
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"hanging")
        producer.flush()
        with Admin(bootstrap_servers=state.bootstrap) as admin:
            place = TopicPartition(topic, 0)
            found = next(
                each
                for each in admin.describe_producers([place])[place].active_producers
                if each.current_transaction_start_offset >= 0
            )
            filled = words.format(
                offset=found.current_transaction_start_offset,
                id=found.producer_id,
                epoch=found.producer_epoch,
                coordinator=max(found.coordinator_epoch, 0),
            )
            code, _, errors = run(
                f"kafka-transactions.sh --bootstrap-server $B {filled}", state, topic
            )
            assert code == 0, errors
            states = admin.describe_producers([place])[place].active_producers
            assert all(each.current_transaction_start_offset < 0 for each in states)
        producer._client.close()
    assert records(state, topic) == []


# Storage, start and stop


def properties(folder: Path) -> Path:
    path = folder / "server.properties"
    path.write_text(
        f"node.id=5\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={folder}/one,{folder}/two\n"
    )
    return path


def test_a_directory_is_formatted_once(tmp_path: Path) -> None:
    """format writes meta.properties, info shows it, a second format is refused or skipped."""
    file = str(properties(tmp_path))
    assert kafka_script("kafka-storage.sh", "info", "--config", file).code == 1
    cluster_id = kafka_script("kafka-storage.sh", "random-uuid").out.strip()
    assert len(cluster_id) == 22
    answer = kafka_script(
        "kafka-storage.sh", "format", "--cluster-id", cluster_id, "-c", file, "--standalone"
    )
    assert answer.out.splitlines() == [
        f"Formatting metadata directory {tmp_path}/one with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/two with metadata.version 4.3-IV0.",
    ]
    shown = kafka_script("kafka-storage.sh", "info", "-c", file).out
    assert f"Found metadata: {{cluster.id={cluster_id}, directory.id=" in shown
    again = ["format", "-t", cluster_id, "-c", file, "--release-version", "4.3"]
    assert kafka_script("kafka-storage.sh", *again).code == 1
    answer = kafka_script("kafka-storage.sh", *again, "--ignore-formatted")
    assert answer.out == "All of the log directories are already formatted.\n"
    other = kafka_script("kafka-storage.sh", "format", "-t", "other", "-c", file, "-g")
    assert "Invalid cluster.id" in other.errors
    mapped = kafka_script(
        "kafka-storage.sh", "feature-dependencies", "--feature", "group.version=1"
    )
    assert mapped.out == "group.version=1 has no dependencies.\n"


def test_a_server_starts_on_a_formatted_directory_and_stops(tmp_path: Path) -> None:
    """kafka-server-start.sh takes the file and overrides; the cluster has the formatted id."""
    file = properties(tmp_path)
    cluster_id = kafka_script("kafka-storage.sh", "random-uuid").out.strip()
    port = free_port()
    kafka_script("kafka-storage.sh", "format", "-t", cluster_id, "-c", str(file))
    code = "import sys; from ottla.cli.kafka_scripts.server_start import main; main()"
    words = [sys.executable, "-c", code, str(file)]
    words += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    words += [f"--override=log.dirs={tmp_path}/one"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert b"ready on" in process.stdout.readline()
        shown = kafka_script(
            "kafka-cluster.sh", "cluster-id", "--bootstrap-server", f"127.0.0.1:{port}"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert shown.out == f"Cluster ID: {cluster_id}\n"


def test_a_server_goes_to_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-daemon returns at once; the output is in a file; stop finds it by its node id."""
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    file = properties(tmp_path)
    port = free_port()
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port}"
    words = ["-daemon", str(file), "--override", listeners, "--override", "node.id=77"]
    assert (
        kafka_script("kafka-server-start.sh", *words, "--override", f"log.dirs={tmp_path}/one").code
        == 0
    )
    output = tmp_path / "logs" / "kafkaServer.out"
    try:
        wait_for(output, "ready on")
        assert "node 77" in output.read_text()
        # Only this one may be stopped: other tests run servers of their own.
        found = started_on(port)
        assert [server_stop.node_id_of(each) for each in found] == [77]
        monkeypatch.setattr(server_stop, "processes", lambda: found)
        assert kafka_script("kafka-server-stop.sh", "--node-id=78").code == 1
        answer = kafka_script(
            "kafka-server-stop.sh", "stop", "--node-id=77", "--process-role=broker"
        )
        assert answer.code == 0
        wait_for(output, "stopped")
    finally:
        monkeypatch.undo()
        for each in started_on(port):
            os.kill(each.pid, signal.SIGKILL)


def started_on(port: int) -> list[server_stop.Process]:
    return [each for each in server_stop.servers(server_stop.processes()) if str(port) in each[1]]


def wait_for(output: Path, word: str) -> None:
    deadline = time.monotonic() + 60
    while word not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)


def test_only_servers_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is a server by how it was started, not by a word somewhere in its arguments."""
    lines = {
        1: "/usr/bin/python3 -m ottla server --set node.id=4",
        2: "/venv/bin/python /venv/bin/ottla server",
        3: "/venv/bin/python3.11 /venv/bin/kafka-server-start.sh server.properties",
        4: "vim ottla server",
        5: "/venv/bin/python /venv/bin/ottla topics list server",
        6: "grep -r ottla server",
        7: "/usr/bin/python3 -c import ottla; print('server')",
    }
    processes = [server_stop.Process(pid, words) for pid, words in lines.items()]
    assert [each.pid for each in server_stop.servers(processes)] == [1, 2, 3]
    monkeypatch.setattr(server_stop, "processes", list)
    answer = kafka_script("kafka-server-stop.sh")
    assert (answer.code, answer.errors) == (1, "No kafka server to stop\n")


def test_the_start_script_says_how_it_is_used(tmp_path: Path) -> None:
    """Without a file, with a wrong one, with a stray word: usage or a sentence."""
    assert "USAGE: kafka-server-start.sh" in kafka_script("kafka-server-start.sh").errors
    assert kafka_script("kafka-server-start.sh", "/nowhere/server.properties").code == 1
    file = str(properties(tmp_path))
    assert kafka_script("kafka-server-start.sh", file, "--stray").code == 1
    assert server_arguments([file, "--override", "a=b"]) == [
        "server",
        "--config",
        file,
        "--set",
        "a=b",
    ]
