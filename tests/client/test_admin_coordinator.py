"""The admin client and brokers that are gone, or come back."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import Admin
from ottla.supervisor.ports import free_port
from ottla.wire.api.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.api.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.client.fake import FakeBroker

OFFSET_FETCH, METADATA, FIND_COORDINATOR, ALTER_LOG_DIRS = 9, 3, 10, 34


def test_another_coordinator_is_looked_for_when_the_known_one_is_gone() -> None:
    """Its connection is refused: the next try asks again who coordinates the group."""
    coordinators = [(2, free_port())]

    def metadata(header: Any, request: Any, broker: FakeBroker) -> Any:
        alive = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
        return MetadataResponse(brokers=[alive], controller_id=1, topics=[])

    def find(header: Any, request: Any, broker: FakeBroker) -> Any:
        node_id, port = coordinators.pop() if coordinators else (1, broker.port)
        found = Coordinator(key="g", node_id=node_id, host="127.0.0.1", port=port)
        return FindCoordinatorResponse(coordinators=[found])

    def fetch(header: Any, request: Any, broker: FakeBroker) -> Any:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[])])

    with (
        FakeBroker({METADATA: metadata, FIND_COORDINATOR: find, OFFSET_FETCH: fetch}) as broker,
        Admin(bootstrap_servers=broker.bootstrap, request_timeout_ms=5000) as admin,
    ):
        assert admin.list_group_offsets("g") == {"g": {}}
    assert [key for key, _ in broker.seen].count(FIND_COORDINATOR) == 2


def test_a_broker_that_was_down_is_asked_once_it_is_back() -> None:
    """The metadata of before does not have it: it is asked for again, not only waited."""
    answers = 0

    def metadata(header: Any, request: Any, broker: FakeBroker) -> Any:
        nonlocal answers
        answers += 1
        alive = [
            MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=broker.port)
            for node_id in ((1,) if answers == 1 else (1, 2))
        ]
        return MetadataResponse(brokers=alive, controller_id=1, topics=[])

    def alter(header: Any, request: Any, broker: FakeBroker) -> Any:
        return AlterReplicaLogDirsResponse(results=[])

    with (
        FakeBroker({METADATA: metadata, ALTER_LOG_DIRS: alter}) as broker,
        Admin(bootstrap_servers=broker.bootstrap, request_timeout_ms=3000) as admin,
    ):
        assert list(admin._client.cluster.brokers) == [1]
        assert admin.alter_replica_log_dirs({("first", 0, 2): "/data"}) == {}
