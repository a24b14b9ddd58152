"""Brokers that reach each other over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla import Consumer, Producer
from ottla.admin import NewTopic
from ottla.testing import Cluster

from .certificates import authority, server_identity
from .harness import tls_options


@pytest.mark.xdist_group("cluster")
def test_a_cluster_runs_over_tls(tmp_path: Path) -> None:
    """Three brokers that show each other certificates: replicas agree, a killed leader is replaced
    and catches up again, and no acknowledged record is lost."""
    keys = server_identity().write_pem(tmp_path / "server.pem")
    trusted = authority().write(tmp_path / "ca.pem")
    client = {
        "security_protocol": "SSL",
        "ssl_cafile": str(trusted),
        "ssl_certfile": str(keys),
    }
    options = {
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        **tls_options(keys, trusted),
    }
    with Cluster(directory=tmp_path / "cluster", client_options=client, **options) as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic("t", 1, 3)], wait_for_metadata=True)
        servers = {"bootstrap_servers": cluster.bootstrap_servers, **client}
        with Producer(**servers, acks="all") as producer:
            sent = [producer.send("t", b"%d" % n) for n in range(500)]
            assert all(each.get(60) for each in sent[:100])
            victim = cluster.leader("t", 0)
            cluster.kill(victim)
            sent += [producer.send("t", b"%d" % n) for n in range(500, 1000)]
            assert all(each.get(60) for each in sent)
        cluster.restart(victim)
        cluster.wait_for_isr("t")
        with Consumer("t", **servers, auto_offset_reset="earliest") as consumer:
            assert [next(consumer).value for _ in sent] == [b"%d" % n for n in range(1000)]
