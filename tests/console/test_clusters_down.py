"""Clusters that are slow, half down or gone: what was known stays, with its age and the reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from ottla.client.admin import Admin
from ottla.console.access.middleware import protect
from ottla.console.access.open import EVERYBODY, OpenAccess
from ottla.console.app import create_app
from ottla.console.collecting import collector, questions
from ottla.console.collecting.collector import CollectedCluster
from ottla.console.context import Console
from ottla.console.web import rendering
from ottla.testing.cluster import Cluster
from tests.live import Server
from tests.waiting import eventually, suspend

from .pictures import FakeHistory


@contextmanager
def collected(bootstrap: str) -> Iterator[CollectedCluster]:
    cluster = CollectedCluster("main", {"bootstrap_servers": bootstrap}, interval_s=0.2)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.close()


def pages_of(cluster: CollectedCluster) -> TestClient:
    console = Console({"main": cast(Any, cluster)}, FakeHistory())
    app = protect(create_app(console, parts=("web",)), OpenAccess(EVERYBODY))
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def test_a_broker_that_hangs_and_one_that_is_gone(tmp_path: Path, monkeypatch: Any) -> None:
    """Pages show what was known at once, how old it is and why; after its return it is new."""
    monkeypatch.setattr(rendering, "OLD_PICTURE_MS", 500)
    for module in (collector, questions):
        monkeypatch.setattr(module, "TIMEOUT_MS", 1000)
    server = Server(tmp_path / "data").start()
    try:
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.create_topics({"orders": {"num_partitions": 3}})
        with collected(server.bootstrap) as cluster:
            pages = pages_of(cluster)
            eventually(lambda: "orders" in cluster.picture.topics, "no topic")

            def silent() -> bool:
                page = pages.get("/c/main/topics").text
                assert "orders" in page  # in each of them: nothing of what was known is lost
                return "The cluster has not answered for" in page

            suspend(server.pid)  # slow beyond all measure
            eventually(silent, "nothing says that it is old")
            os.kill(server.pid, signal.SIGCONT)
            eventually(lambda: not silent(), "it is still old")
            server.kill()
            eventually(silent, "nothing says that it is gone")
            problems = [each.text for each in cluster.picture.problems]
            eventually(
                lambda: any("does not answer" in each.text for each in cluster.picture.problems),
                f"no reason: {problems}",
            )
            assert not any(each.up for each in cluster.picture.brokers)
            taken_ms = cluster.picture.taken_ms
            server.restart()
            eventually(lambda: cluster.picture.taken_ms != taken_ms, "it is not found again")
            eventually(lambda: not cluster.picture.problems, "the problem stays")
            assert cluster.picture.brokers[0].up
    finally:
        server.kill()


def test_a_cluster_that_is_half_down(tmp_path: Path) -> None:
    """One broker of three dies: it is down, partitions are under-replicated; the rest is new."""
    with Cluster(3, directory=tmp_path) as brokers:
        with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            admin.create_topics({"orders": {"num_partitions": 3, "replication_factor": 3}})
        with collected(brokers.bootstrap_servers) as cluster:
            eventually(lambda: len(cluster.picture.brokers) == 3, "not all brokers")
            eventually(lambda: "orders" in cluster.picture.topics, "no topic")
            dead = 3 if cluster.picture.controller_id != 3 else 2
            brokers.kill(dead)
            eventually(
                lambda: [each.node_id for each in cluster.picture.brokers if not each.up] == [dead],
                "it is not down",
            )
            eventually(
                lambda: cluster.picture.topics["orders"].under_replicated == 3, "all in sync"
            )
            page = pages_of(cluster).get("/c/main/").text
            assert "2 / 3" in page
            assert "3 under-replicated" in pages_of(cluster).get("/c/main/topics").text
            before = cluster.picture.taken_ms
            assert before is not None
            eventually(lambda: (cluster.picture.taken_ms or 0) > before, "pictures end")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"security_protocol": "SSL", "ssl_cafile": "/not/there.pem"}, "/not/there.pem"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl_plain_username"),
        ({"bootstrap_servers": "host:99999"}, "99999"),
    ],
)
def test_a_cluster_that_cannot_be_asked_says_why(options: dict[str, str], reason: str) -> None:
    """Options that no client can be made with: the page has the reason, and is there."""
    cluster = CollectedCluster(
        "main", {"bootstrap_servers": "127.0.0.1:1", **options}, interval_s=0.05
    )
    cluster.start()
    try:
        eventually(lambda: cluster.picture.problems, "no problem is named")
        assert reason in pages_of(cluster).get("/c/main/").text
    finally:
        cluster.close()
