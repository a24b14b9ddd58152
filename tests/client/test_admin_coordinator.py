"""The admin client and a coordinator that is gone."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import Admin
from ottla.supervisor.ports import free_port
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.api.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.client.fake import FakeBroker

OFFSET_FETCH, METADATA, FIND_COORDINATOR = 9, 3, 10


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
