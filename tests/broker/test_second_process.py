"""Two processes with one broker id: the second waits for the end of the first."""

from __future__ import annotations

import pytest

from ottla.cluster.image import BrokerInfo
from ottla.cluster.state import RegistrationRefused
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import Cluster


def test_a_second_process_is_refused_while_the_first_is_connected() -> None:
    """And registers as soon as the first is gone, whether its session has ended or not."""
    with Cluster(2) as cluster:
        controller, node = cluster.controller, cluster.brokers[1].node
        second = BrokerInfo(2, {}, incarnation=b"a second process")
        before = controller.image.brokers[2]
        with pytest.raises(RegistrationRefused) as refused:
            cluster.run(node, controller.register_broker(second))
        assert refused.value.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert controller.image.brokers[2] == before
        cluster.brokers[2].crash()
        cluster.wait(lambda: not controller.is_alive(2, before.epoch))
        registered = cluster.run(node, controller.register_broker(second))
        assert registered.epoch > before.epoch
