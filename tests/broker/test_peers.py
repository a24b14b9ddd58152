"""Markers and verification through `Peers`: as if coordinator and leader were two brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.peers import LocalPeers
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.wire.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.out import Out
from ottla.wire.schema import reader, writer
from tests.broker.harness import BrokerHarness
from tests.broker.test_transactions import SETTINGS, client_of, produced, state_of
from tests.broker.transactional import TOPIC, Client, visible

DELAY_S = 0.02


class RemotePeers:
    """Every message is encoded, delayed and decoded; `losses` of the responses are lost."""

    def __init__(self, harness: BrokerHarness) -> None:
        self._local = LocalPeers(harness.broker)
        self._clock = harness.clock
        self.sent: list[tuple[int, Any]] = []
        self.losses: list[ErrorCode] = []

    def send(self, node_id: int, request: Any, then: Callable[[Any], object]) -> None:
        self.sent.append((node_id, request))
        api = API[type(request).__schema__.key]

        def answered(response: Any) -> None:
            if self.losses:
                self._clock.call_later(DELAY_S, then, self.losses.pop(0))
            elif isinstance(response, ErrorCode):
                self._clock.call_later(DELAY_S, then, response)
            else:
                self._clock.call_later(DELAY_S, then, copied(api.response, response))

        arrived = copied(api.request, request)
        self._clock.call_later(DELAY_S, self._local.send, node_id, arrived, answered)

    def follow(self, image: Any) -> None:
        self._local.follow(image)

    def close(self) -> None:
        self._local.close()

    def of(self, kind: type[Any]) -> list[tuple[int, Any]]:
        return [each for each in self.sent if isinstance(each[1], kind)]


def copied(cls: type[Any], message: Any) -> Any:
    """What the other side reads of a message in its latest version."""
    version = cls.__schema__.versions[1]
    return reader(cls, version)(memoryview(bytes(writer(cls, version)(message, Out()))), 0)[0]


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness(**SETTINGS) as harness:
        harness.create(TOPIC, 2)
        harness.broker.peers = RemotePeers(harness)
        yield harness


def finished(harness: BrokerHarness, client: Client) -> str:
    for _ in range(100):
        state: str = state_of(harness).transaction_state
        if state.startswith("Complete"):
            return state
        harness.advance(100)
    raise AssertionError(f"{client.name} is never complete")


@pytest.mark.parametrize("bumps", [False, True])
def test_transactions_over_the_network(harness: BrokerHarness, bumps: bool) -> None:
    """Verified, written, marked: two requests that Kafka has, to the node that leads."""
    peers: Any = harness.broker.peers
    client = client_of(harness, bumps=bumps)
    client.write(0, b"0")
    client.write(1, b"1")
    client.commit_offset(5)
    client.end(commit=True)
    assert finished(harness, client) == "CompleteCommit"
    assert (visible(harness, 0), visible(harness, 1)) == ([b"0"], [b"1"])
    [(node_id, request)] = peers.of(WriteTxnMarkersRequest)
    assert node_id == harness.broker.node_id
    [marker] = request.markers
    assert marker.transaction_result
    assert marker.producer_id == client.producer_id
    assert {topic.name: topic.partition_indexes for topic in marker.topics} == {
        "__consumer_offsets": [0],
        TOPIC: [0, 1],
    }
    asked = [request for _, request in peers.of(AddPartitionsToTxnRequest)]
    assert [each.transactions[0].verify_only for each in asked] == [not bumps] * 3


@pytest.mark.parametrize("error", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE])
def test_markers_whose_response_is_lost_are_sent_again(
    harness: BrokerHarness, error: ErrorCode
) -> None:
    """Until there is a response; a marker that is written twice changes nothing."""
    peers: Any = harness.broker.peers
    client = client_of(harness)
    client.write(0, b"0")
    peers.losses = [error, error]
    client.end(commit=False)
    assert finished(harness, client) == "CompleteAbort"
    assert len(peers.of(WriteTxnMarkersRequest)) == 3
    assert visible(harness, 0) == []
    client.write(0, b"1")
    client.end(commit=True)
    assert finished(harness, client) == "CompleteCommit"
    assert visible(harness, 0) == [b"1"]


def test_a_verification_without_a_response_can_be_retried(harness: BrokerHarness) -> None:
    """The producer gets an error that it retries on, and nothing is appended."""
    peers: Any = harness.broker.peers
    client = client_of(harness, bumps=True)
    peers.losses = [ErrorCode.NETWORK_EXCEPTION]
    assert produced(client, 12) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.partition(TOPIC).end_offset == 0
    assert produced(client, 12) is ErrorCode.NONE


def test_another_node_is_not_available_here(harness: BrokerHarness) -> None:
    """A cluster of one broker has no other to send to."""
    found: list[Any] = []
    LocalPeers(harness.broker).send(99, WriteTxnMarkersRequest(), found.append)
    assert found == [ErrorCode.BROKER_NOT_AVAILABLE]


def test_a_handler_that_fails_is_an_error(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender gets UNKNOWN_SERVER_ERROR, and goes on."""
    from ottla.broker.handlers import write_txn_markers

    def fails(request: Any, context: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(write_txn_markers, "handle", fails)
    found: list[Any] = []
    peers = LocalPeers(harness.broker)
    peers.send(harness.broker.node_id, WriteTxnMarkersRequest(), found.append)
    assert found == [ErrorCode.UNKNOWN_SERVER_ERROR]
