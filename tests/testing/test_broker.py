"""A real broker in every test: its life, its faults on demand, and the pytest plugin."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as cka

from ottla.testing import Broker, BrokerFailed, broker

pytest_plugins = ["pytester"]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as started:
        yield started


def send(running: Broker, topic: str, value: bytes, **config: object) -> list[object]:
    errors: list[object] = []
    producer = ck.Producer({"bootstrap.servers": running.bootstrap_servers, **config})
    producer.produce(topic, value, partition=0, on_delivery=lambda e, _: e and errors.append(e))
    assert producer.flush(WAIT_S) == 0
    return errors


def read(running: Broker, topic: str) -> bytes:
    consumer = ck.Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "g"})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    consumer.close()
    value: bytes = message.value()
    return value


def test_what_was_acknowledged_outlives_a_kill() -> None:
    """kill() and restart(): the same address, the same data; nothing is left on the disk after."""
    with broker() as own:
        address = own.bootstrap_servers
        assert send(own, "t", b"kept") == []
        own.restart(kill=True)
        assert own.bootstrap_servers == address
        assert read(own, "t") == b"kept"
        directory = own.directory
    assert not directory.exists()
    assert not own.running


def test_a_process_with_many_open_files_can_start_one() -> None:
    """Its pipes have high numbers then, which not every way to wait can take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this process may not open 2048 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with broker() as running:
            running.delay("Fetch", ms=1)
            assert running.running
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_options_by_kafkas_names() -> None:
    """Options are given with dots or underscores."""
    with broker(num_partitions=7, **{"message.max.bytes": 1000}) as own:
        client = cka.AdminClient({"bootstrap.servers": own.bootstrap_servers})
        assert len(client.list_topics("made", WAIT_S).topics["made"].partitions) in (0, 7)
        assert len(client.list_topics("made", WAIT_S).topics["made"].partitions) == 7
        [error] = send(own, "made", b"x" * 2000)
        assert error.code() == ck.KafkaError.MSG_SIZE_TOO_LARGE


def test_a_bad_option_is_reported_in_the_brokers_words() -> None:
    """A broker that cannot start says why."""
    with pytest.raises(BrokerFailed, match=r"num\.partitions"), broker(num_partitions="many"):
        pass


def test_failing_requests_are_retried_by_clients(running: Broker) -> None:
    """fail(): the next requests of an API are answered with the error, then all is well."""
    send(running, "failing", b"warm")
    running.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert send(running, "failing", b"x", **{"retry.backoff.ms": 10}) == []
    running.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
    [error] = send(running, "failing", b"y")
    assert error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_delayed_answers(running: Broker) -> None:
    """delay(): answers come late until the faults are cleared."""
    client = cka.AdminClient({"bootstrap.servers": running.bootstrap_servers})
    client.list_topics(timeout=WAIT_S)
    running.delay("Metadata", ms=400)
    with pytest.raises(ck.KafkaException, match="Timed out"):
        client.list_topics(timeout=0.3)
    client.list_topics(timeout=WAIT_S)
    running.delay("Metadata", ms=int(10 * WAIT_S * 1000))
    running.clear_faults()
    client.list_topics(timeout=WAIT_S)


def test_cut_connections(running: Broker) -> None:
    """disconnect(): an idempotent producer gets over it and writes once."""
    send(running, "cut", b"warm")
    running.disconnect("Produce", times=2)
    config = {"enable.idempotence": True, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10}
    assert send(running, "cut", b"once", **config) == []
    consumer = ck.Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "g"})
    assert consumer.get_watermark_offsets(ck.TopicPartition("cut", 0), WAIT_S) == (0, 2)
    consumer.close()


def test_wrong_faults_are_refused(running: Broker) -> None:
    """An unknown API or error is said at once, with what there is."""
    with pytest.raises(ValueError, match="there is no API 'Prodoos'; there are"):
        running.fail("Prodoos", "NOT_ENOUGH_REPLICAS")
    with pytest.raises(ValueError, match="Kafka has no error 'NOPE'"):
        running.fail("Produce", "NOPE")


def test_no_broker_outlives_its_test() -> None:
    """A test process that dies without a word takes its broker with it."""
    script = "\n".join(
        [
            "import os, ottla.testing",
            "broker = ottla.testing.Broker().start()",
            "print(broker.pid, flush=True)",
            "os._exit(9)",
        ]
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    pid = int(found.stdout)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if subprocess.run(["kill", "-0", str(pid)], capture_output=True).returncode:
            return
        time.sleep(0.05)
    raise AssertionError(f"broker {pid} is still there")


def test_each_worker_of_xdist_has_its_own_broker(pytester: pytest.Pytester) -> None:
    """Workers do not meet: another process, port and data, and no topic name twice."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(number, ottla_broker, ottla_topic, ottla_producer, worker_id):
            ottla_producer.send(ottla_topic, b"x").get(60)
            with open("seen", "a") as file:
                print(worker_id, ottla_broker.pid, ottla_broker.port, ottla_topic, file=file)
        """
    )
    pytester.runpytest_subprocess("-n", "2", "--dist", "load").assert_outcomes(passed=6)
    rows = [line.split() for line in (pytester.path / "seen").read_text().splitlines()]
    workers = {row[0] for row in rows}
    assert len(workers) == 2
    assert len({(row[1], row[2]) for row in rows}) == len({row[1] for row in rows}) == 2
    assert len({row[3] for row in rows}) == 6


def test_the_plugin(pytester: pytest.Pytester) -> None:
    """Fixtures come with the package; options by marker; a failed test shows the broker's log."""
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient

        def partitions(broker, topic):
            client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            for _ in range(2):
                found = client.list_topics(topic, 20).topics[topic].partitions
            return len(found)

        def test_shared(ottla_broker, ottla_topic, ottla_shared_broker):
            assert ottla_broker is ottla_shared_broker
            assert partitions(ottla_broker, ottla_topic) == 1

        @pytest.mark.ottla(num_partitions=3)
        def test_own(ottla_broker, ottla_topic, ottla_shared_broker):
            assert ottla_broker is not ottla_shared_broker
            assert partitions(ottla_broker, ottla_topic) == 3

        def test_failing(ottla_own_broker):
            ottla_own_broker.restart()
            assert False
        """
    )
    result = pytester.runpytest("-p", "no:randomly")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*log of <ottla.testing.Broker*", "*stopped*"])
