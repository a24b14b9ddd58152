"""Cut links between the brokers of a test's cluster."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from ottla import NewTopic, Producer
from ottla.supervisor.link_ports import LinkPorts
from ottla.supervisor.ports import free_ports
from ottla.testing import BrokerFailed, Cluster
from ottla.testing.links import Links
from tests.waiting import eventually


def hello(client_id: bytes) -> bytes:
    """A frame that begins as a request of a client does."""
    body = struct.pack(">hhih", 18, 0, 1, len(client_id)) + client_id
    return struct.pack(">i", len(body)) + body


class Echo:
    """Answers each connection with what it gets."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def close(self) -> None:
        self._listener.close()


def test_a_cut_link_holds_bytes_until_it_is_healed() -> None:
    """In one direction or both, also for connections that are opened meanwhile; other brokers and
    clients are not concerned, and a closed proxy refuses connections."""
    ports = LinkPorts(free_ports(6), 3)
    links, target = Links(ports), Echo(ports.broker(2))
    try:
        links.open(2)
        address = ("127.0.0.1", ports.proxy(2))
        with (
            socket.create_connection(address, 30) as one,
            socket.create_connection(address, 30) as three,
        ):
            for connection, name in ((one, b"broker-1"), (three, b"broker-3")):
                connection.sendall(hello(name))
                assert connection.recv(100) == hello(name)
            for one_way in (False, True):
                links.cut(1, 2, one_way=one_way)
                one.sendall(b"held")
                three.sendall(b"passed")
                assert three.recv(100) == b"passed"
                with socket.create_connection(address, 30) as late:
                    late.sendall(hello(b"broker-1"))
                    for silent in (one, late):
                        silent.setblocking(False)
                        with pytest.raises(BlockingIOError):
                            silent.recv(100)
                        silent.settimeout(30)
                    links.heal(1, 2)
                    assert one.recv(100) == b"held"
                    assert late.recv(100) == hello(b"broker-1")
        links.close(2)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 30).close()
    finally:
        links.stop()
        target.close()


def test_a_slow_link_delays_what_passes() -> None:
    """In order, in both directions and of that link alone; what is lost comes later still. Healed,
    nothing is delayed any more."""
    ports = LinkPorts(free_ports(6), 3)
    links, target = Links(ports), Echo(ports.broker(2))
    try:
        links.open(2)
        links.slow(1, 2, 0.3, lost=0.5)
        address = ("127.0.0.1", ports.proxy(2))
        with (
            socket.create_connection(address, 30) as one,
            socket.create_connection(address, 30) as three,
        ):
            sent = hello(b"broker-1") + bytes(range(200)) * 2000
            one.sendall(sent)
            three.sendall(hello(b"broker-3"))
            assert three.recv(100) == hello(b"broker-3")
            received = b""
            while len(received) < len(sent):
                received += one.recv(65536)
            assert received == sent
            delays_s = {links._delay_s(*pair) for pair in ((1, 2), (2, 1)) for _ in range(50)}
            assert sorted(delays_s)[:2] == [0.3, 0.5]
            links.heal()
            assert {links._delay_s(1, 2), links._delay_s(2, 1), links._delay_s(1, 3)} == {0}
    finally:
        links.stop()
        target.close()


@pytest.mark.ottla(links=True, replica_lag_time_max_ms=30_000)
def test_replicas_keep_up_over_slow_links_that_lose_packets(ottla_cluster: Cluster) -> None:
    """Records are acknowledged by all, and none leaves the ISR: slow is not dead."""
    cluster = ottla_cluster
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("t", 1)])
    cluster.wait_for_isr("t")
    for one, other in ((1, 2), (2, 3), (1, 3)):
        cluster.slow(one, other, latency_s=0.02, lost=0.1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(200)]
        assert [each.get(60).offset for each in futures] == list(range(200))
    cluster.wait_for_isr("t")
    cluster.heal()


@pytest.mark.ottla(links=True, broker_session_timeout_ms=3000)
def test_an_isolated_leader_is_replaced(ottla_cluster: Cluster) -> None:
    """Cut off from the others it leads no more when its session is over; healed, it follows."""
    cluster = ottla_cluster
    controller = cluster.controller()
    one, two = (each for each in cluster.node_ids if each != controller)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("t", replica_assignments={0: [one, two, controller]})])
    send(cluster, b"before", *cluster.node_ids)
    cluster.wait_for_isr("t")
    cluster.isolate(one)
    eventually(lambda: cluster.leader("t") in (two, controller), "another leads")
    # Clients still reach the one that is cut off, which cannot know: these do not ask it.
    send(cluster, b"after", two, controller)
    cluster.heal()
    cluster.wait_for_isr("t")


def send(cluster: Cluster, value: bytes, *brokers: int) -> None:
    servers = ",".join(cluster.address(each) for each in brokers)
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        producer.send("t", value=value, partition=0).get(60)


def test_the_function_is_not_hidden_by_its_module() -> None:
    """`ottla.testing.cluster` is what the documents say, whoever has imported the module."""
    import ottla.testing.cluster

    assert callable(ottla.testing.cluster)


def test_links_are_cut_only_where_there_are_proxies() -> None:
    """A cluster without them says how to have them."""
    with pytest.raises(BrokerFailed, match="links=True"):
        Cluster().heal()
