"""The core under the clients: versions, timeouts, broken peers, the cluster's metadata."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from ottla.client import errors
from ottla.client.config import COMMON, parse
from ottla.client.network.cluster_client import ANY, Client
from ottla.client.network.cluster_metadata import Broker, Cluster, Partition, Topic
from ottla.client.network.io_thread import Loop
from ottla.client.producer.accumulator import Batch, Memory, PartitionQueue
from ottla.client.producer.idempotence import Identity
from ottla.client.producer.retry_decision import decide
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from tests.client.fake import FakeBroker
from tests.waiting import eventually


def client_of(broker: FakeBroker, **options: Any) -> Client:
    options = {"bootstrap_servers": broker.bootstrap, "retry_backoff_ms": 10, **options}
    return Client(parse(COMMON, options))


def metadata(header: RequestHeader, request: Any, broker: FakeBroker) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)],
        controller_id=1,
    )


def test_versions_are_the_highest_that_both_know() -> None:
    """A broker of old takes part in its own versions."""
    with FakeBroker({3: metadata}) as broker:
        broker.advertised[3] = (0, 5)
        client = client_of(broker)
        client.bootstrap(5000)
        client.close()
    assert (3, 5) in broker.seen


def test_an_old_broker_is_asked_again_for_its_versions() -> None:
    """KIP-511: refused with version 4, asked again with the one it names."""

    def old(header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        if header.api_version > 2:
            known = ApiVersion(api_key=18, min_version=0, max_version=2)
            return ApiVersionsResponse(error_code=35, api_keys=[known])
        return broker.versions(header, request, broker)

    with FakeBroker({3: metadata, 18: old}) as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        client.close()
    assert broker.seen[:2] == [(18, 4), (18, 2)]


def test_what_the_broker_does_not_have_is_said() -> None:
    """An API or version that is missing there is an error at once, not a broken connection."""
    with FakeBroker({3: metadata}) as broker:
        del broker.advertised[60]
        client = client_of(broker)
        client.bootstrap(5000)
        with pytest.raises(errors.UnsupportedVersionError, match=r"DescribeCluster.*does not have"):
            client.call(ANY, DescribeClusterRequest())
        client.call(ANY, MetadataRequest(topics=[]))
        client.close()
    assert broker.connections <= 2


def test_silence_is_a_timeout_and_the_connection_is_made_anew() -> None:
    """No answer in time fails the request; the next one has another connection."""
    silent = threading.Event()

    def sometimes(header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        return None if silent.is_set() else metadata(header, request, broker)

    with FakeBroker({3: sometimes}) as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        client.call(1, MetadataRequest(topics=[]))
        before = broker.connections
        silent.set()
        with pytest.raises(errors.RequestTimedOutError, match="did not answer Metadata in time"):
            client.call(1, MetadataRequest(topics=[]), timeout_ms=200)
        silent.clear()
        client.call(1, MetadataRequest(topics=[]))
        assert broker.connections == before + 1
        client.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x00\x00\x04\x7f\x00\x00\x00",  # an answer to a question that was not asked
        b"\xff\xff\xff\xff",  # a negative size
        b"\x7f\xff\xff\xff",  # two gigabytes
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_a_peer_that_speaks_nonsense_is_dropped_with_a_reason(nonsense: bytes) -> None:
    """Whatever comes, the request fails with an error that names the peer."""
    with FakeBroker({3: lambda *_: nonsense}) as broker:
        client = client_of(broker, request_timeout_ms=1000)
        with pytest.raises(errors.KafkaError, match=r"127\.0\.0\.1"):
            client.call(ANY, MetadataRequest(topics=[]))
        client.close()


def test_a_closed_client_refuses() -> None:
    """After close() everything is refused, and close() may be called again."""
    with FakeBroker({3: metadata}) as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        client.close()
        client.close()
        with pytest.raises(errors.KafkaError, match="closed"):
            client.call(ANY, MetadataRequest(topics=[]))


def test_an_answer_that_comes_while_the_client_closes_is_no_error() -> None:
    """In its own thread an ending loop drops what asks for another turn; elsewhere it refuses."""
    loop = Loop("ending")
    began, ended = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def answer() -> None:
        began.set()
        ended.wait(60)
        try:
            loop.call_soon(failures.append, AssertionError("it ran"))
        except Exception as failure:
            failures.append(failure)

    loop.call_soon(answer)
    assert began.wait(60)
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    while loop.broken is None:
        time.sleep(0.001)
    ended.set()
    stopper.join(60)
    assert failures == []
    with pytest.raises(errors.IllegalStateError):
        loop.call_soon(print)


def test_idle_connections_are_closed_and_come_back() -> None:
    """connections_max_idle_ms: the next request simply connects again."""
    with FakeBroker({3: metadata}) as broker:
        client = client_of(broker, connections_max_idle_ms=200)
        client.bootstrap(5000)
        client.call(1, MetadataRequest(topics=[]))
        eventually(lambda: not client.connections.by_key, "the idle connection is closed")
        client.call(1, MetadataRequest(topics=[]))
        client.close()


def metadata_of(leader: int, epoch: int) -> Cluster:
    partition = Partition("t", 0, leader, epoch, (1, 2), (1, 2), (), 0)
    topic = Topic("t", b"i" * 16, False, (partition,), 0)
    return Cluster({1: Broker(1, "a", 1), 2: Broker(2, "b", 2)}, {"t": topic})


def test_an_older_leader_epoch_never_replaces_a_newer_one() -> None:
    """KIP-320: an answer from a broker that is behind changes nothing for that partition."""

    def answer(leader: int, epoch: int) -> MetadataResponse:
        part = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        topic = MetadataResponseTopic(name="t", topic_id=b"i" * 16, partitions=[part])
        return MetadataResponse(topics=[topic])

    cluster = metadata_of(1, 5)
    assert cluster.updated(answer(2, 4), ["t"]).leader("t", 0) == 1
    assert cluster.updated(answer(2, 6), ["t"]).leader("t", 0) == 2
    assert cluster.updated(MetadataResponse(), ["t"]).topics == {}
    assert cluster.updated(MetadataResponse(), ["other"]).leader("t", 0) == 1


def test_a_hint_moves_the_leader_at_once() -> None:
    """KIP-951: only news, and only to a broker whose address is known."""
    cluster = metadata_of(1, 5)
    assert cluster.with_leader("t", 0, 2, 6).leader("t", 0) == 2
    assert cluster.with_leader("t", 0, 2, 5) is cluster
    assert cluster.with_leader("t", 0, 3, 6) is cluster
    endpoint = type("Endpoint", (), {"node_id": 3, "host": "c", "port": 3, "rack": None})()
    moved = cluster.with_leader("t", 0, 3, 6, [endpoint])
    assert (moved.leader("t", 0), moved.brokers[3].host) == (3, "c")


def batch_in(queue: PartitionQueue, sequence: int, count: int = 1, epoch: int = 0) -> Batch:
    batch = Batch(queue, 100, 0.0, 1e12)
    batch.count, batch.sequence, batch.epoch, batch.attempts = count, sequence, epoch, 1
    return batch


def test_what_is_put_back_stands_in_the_order_of_its_numbers() -> None:
    """Also where the numbers begin again after the largest."""
    queue = PartitionQueue("t", 0)
    fresh = batch_in(queue, -1)
    queue.closed.append(fresh)
    sequences = [2**31 - 10, 2**31 - 5, 0, 7]
    batches = {number: batch_in(queue, number) for number in sequences}
    for number in (7, 2**31 - 5, 0, 2**31 - 10):
        queue.put_back(batches[number])
    assert list(queue.closed) == [*(batches[number] for number in sequences), fresh]


@pytest.mark.parametrize(
    ("code", "count", "behind", "expected"),
    [
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 1, False, ("succeed", False)),
        (ErrorCode.MESSAGE_TOO_LARGE, 2, False, ("split", False)),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, False, ("fail", False)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, False, ("retry", False)),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, True, ("retry", False)),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, False, ("retry", True)),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 1, False, ("retry", True)),
        (ErrorCode.INVALID_RECORD, 1, False, ("fail", False)),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, False, ("fail", False)),
    ],
)
def test_verdicts(code: ErrorCode, count: int, behind: bool, expected: tuple[str, bool]) -> None:
    """Which errors are retried, which need a higher epoch first, which end it."""
    identity = Identity.__new__(Identity)
    identity.transactional_id = None
    queue = PartitionQueue("t", 0)
    if behind:
        queue.in_flight.append(batch_in(queue, 3))
    batch = batch_in(queue, 4, count)
    decision = decide(batch, errors.error_for(code), identity, {"retries": 5})
    assert (decision.action, decision.bump) == expected
    identity.transactional_id = "x"
    if expected[1]:
        decision = decide(batch, errors.error_for(code), identity, {"retries": 5})
        assert (decision.action, decision.bump) == ("fail", False)


def test_doubt_stays_until_the_broker_settles_it() -> None:
    """A lost answer leaves a batch ambiguous; only a wrong sequence proves it was not written."""
    identity = Identity.__new__(Identity)
    identity.transactional_id = None
    queue = PartitionQueue("t", 0)
    batch = batch_in(queue, 4)
    config = {"retries": 9}
    decide(batch, errors.KafkaConnectionError("cut"), identity, config)
    assert batch.ambiguous
    decide(batch, errors.error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER), identity, config)
    assert batch.ambiguous
    decide(batch, errors.error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), identity, config)
    assert not batch.ambiguous


def test_memory_is_waited_for_and_given_back() -> None:
    """A reservation waits for a release, gives up in time, and lets one large record through."""
    memory = Memory(100)
    memory.reserve(500, 0.0, lambda: None)
    with pytest.raises(errors.KafkaTimeoutError, match="buffer_memory=100"):
        memory.reserve(1, time.monotonic() + 0.05, lambda: None)
    threading.Timer(0.05, memory.release, (500,)).start()
    memory.reserve(60, time.monotonic() + 60, lambda: None)
    assert memory.used == 60


def test_a_slow_name_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one host name is looked up, another broker is asked, and answers."""
    asked, go_on = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def slow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "slow.example":
            return real(host, *args, **kwargs)
        if kwargs.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        asked.set()
        go_on.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    def two_brokers(header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        answer = metadata(header, request, broker)
        answer.brokers.append(MetadataResponseBroker(node_id=2, host="slow.example", port=9092))
        return answer

    with FakeBroker({3: two_brokers}) as broker:
        client = client_of(broker)
        client.bootstrap(5000)
        lost = client.submit(2, MetadataRequest(topics=[]))
        assert asked.wait(60)
        client.call(1, MetadataRequest(topics=[]), timeout_ms=5000)
        assert not lost.done()
        go_on.set()
        with pytest.raises(errors.KafkaConnectionError, match=r"slow\.example.*not known"):
            client.wait(lost, 5000)
        client.close()


@pytest.mark.parametrize("host", ["localhost", "no-such-host.invalid", "a..b"])
def test_host_names(host: str) -> None:
    """A name is looked up; one that is not there is in the error."""
    with FakeBroker({3: metadata}) as broker:
        client = Client(
            parse(COMMON, {"bootstrap_servers": f"{host}:{broker.port}", "retry_backoff_ms": 10})
        )
        if host == "localhost":
            client.bootstrap(5000)
        else:
            with pytest.raises(errors.NoBrokersAvailable, match=host):
                client.bootstrap(500)
        client.close()


def test_a_host_that_swallows_connections_is_left_for_another() -> None:
    """It neither takes nor refuses them (a firewall): after one try the next broker is asked."""
    swallowing = socket.socket()
    swallowing.bind(("127.0.0.1", 0))
    swallowing.listen(0)
    hung = swallowing.getsockname()
    fillers = []
    for _ in range(3):  # its queue is full then, and the system answers nobody
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(hung)
        fillers.append(filler)
    with FakeBroker({3: metadata}) as broker:
        client = Client(
            parse(
                COMMON,
                {
                    "bootstrap_servers": [f"127.0.0.1:{hung[1]}", broker.bootstrap],
                    "request_timeout_ms": 300,
                    "retry_backoff_ms": 10,
                },
            )
        )
        lost = client.submit(-1, MetadataRequest(topics=[]))
        with pytest.raises(errors.KafkaTimeoutError, match=f"no connection to .*{hung[1]} in time"):
            client.wait(lost, 5000)
        assert client.bootstrap(5000).brokers
        assert client.connections.failures() == [f"127.0.0.1:{hung[1]}: no connection in time"]
        client.close()
    for each in (swallowing, *fillers):
        each.close()
