"""The collector against a real broker: `ottla console` shows what is there."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Consumer, Producer, TopicPartition, __version__
from ottla.client.admin import Admin
from ottla.console.collecting.collector import CollectedCluster
from ottla.console.picture import ClusterPicture
from ottla.structs import OffsetAndMetadata
from tests.live import Server, environment_with, free_port
from tests.waiting import eventually

RECORDS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    metrics = f"127.0.0.1:{free_port()}"
    directory = tmp_path_factory.mktemp("console") / "data"
    with Server(directory, arguments=("--metrics", metrics)) as started:
        started.environment["metrics"] = f"http://{metrics}/metrics"
        with Admin(bootstrap_servers=started.bootstrap) as admin:
            admin.create_topics({"orders": {"num_partitions": 3}})
        with Producer(bootstrap_servers=started.bootstrap) as producer:
            for each in range(RECORDS):
                producer.send("orders", b"x" * 100, partition=each % 2)
            producer.flush()
        with Consumer(
            bootstrap_servers=started.bootstrap, group_id="billing", enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(4, "so far")})
        yield started


@pytest.fixture(scope="module")
def picture(server: Server) -> ClusterPicture:
    """The first whole picture of the server."""
    cluster = CollectedCluster(
        "main",
        {"bootstrap_servers": server.bootstrap},
        metrics=(server.environment["metrics"],),
        interval_s=0.05,
    )
    cluster.start()
    try:
        eventually(lambda: cluster.picture.groups.get("billing") is not None, "no group")
        eventually(lambda: cluster.picture.groups["billing"].lag_ms is not None, "no lag in time")
        eventually(lambda: cluster.picture.brokers[0].requests, "no rates of requests")
        return cluster.picture
    finally:
        cluster.close()


def test_a_picture_has_topics_with_offsets_and_sizes(picture: ClusterPicture) -> None:
    """Topics, partitions, leaders, ISR, offsets and sizes are as the broker has them."""
    topic = picture.topics["orders"]
    assert [(each.start_offset, each.end_offset) for each in topic.partitions] == [
        (0, 10), (0, 10), (0, 0),
    ]  # fmt: skip
    assert topic.records == RECORDS
    assert topic.size_bytes > RECORDS * 100
    assert topic.topic_id
    broker = picture.brokers[0]
    assert (broker.up, broker.controller) == (True, True)
    assert {each.leader for each in topic.partitions} == {broker.node_id}
    assert broker.log_dirs[0].used_bytes >= topic.size_bytes
    assert picture.problems == ()


def test_a_broker_has_the_figures_of_its_endpoint(picture: ClusterPicture) -> None:
    """Connections, memory, rates and the version come from the broker's Prometheus endpoint."""
    broker = picture.brokers[0]
    assert broker.version == __version__
    assert picture.software == f"Ottla {__version__}"
    assert broker.connections is not None
    assert broker.connections >= 1
    assert broker.memory_bytes is not None
    assert broker.memory_bytes > 1 << 20
    assert broker.bytes_in_rate is not None
    assert broker.metrics_age_ms is not None
    assert all(each.rate > 0 for each in broker.requests)
    assert any(each.mean_ms and each.p99_ms for each in broker.requests)


def test_a_group_has_its_lag_in_records_and_in_time(picture: ClusterPicture) -> None:
    """Committed 4 of 10: 6 records behind; how long, by the timestamp of the record there."""
    group = picture.groups["billing"]
    (lag,) = group.lags
    assert (lag.topic, lag.partition, lag.committed, lag.lag) == ("orders", 0, 4, 6)
    assert lag.metadata == "so far"
    assert group.lag == 6
    assert group.lag_ms is not None
    assert group.lag_ms >= 0
    assert (group.kind, group.state) == ("classic", "Empty")


def test_the_command_serves_pages_of_the_cluster(server: Server, tmp_path: Path) -> None:
    """`ottla console` prints its address, shows the cluster there, and ends well by SIGTERM."""
    command = [
        sys.executable, "-m", "ottla", "console", "--bootstrap-server", server.bootstrap,
        "--port", "0", "--no-login", "--interval", "1", "--data-dir", str(tmp_path / "console"),
    ]  # fmt: skip
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment_with({"PYTHONUNBUFFERED": "1"})
    )
    try:
        assert running.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", running.stdout.readline())
        assert found is not None

        def shown() -> bool:
            with urllib.request.urlopen(found[0]) as answer:
                return "orders" in answer.read().decode()

        eventually(shown, "the overview has no topic")
        running.terminate()
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
