"""Several brokers and one controller over the network: changes, and what must not be."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker import remote_controller
from ottla.cluster import feed_messages
from ottla.cluster.requests import ResourceType
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.alter_partition import AlterPartitionRequest
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.api.follow_feed import FollowFeedRequest
from ottla.wire.api.forward import ForwardRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.register_broker import RegisterBrokerRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from ottla.wire.apis import BROKER_API
from ottla.wire.errors import ErrorCode
from tests.broker.cluster_harness import (
    INTERNAL_PORT,
    Cluster,
    led_by,
    produce,
)


class TestChanges:
    """Admin requests through any broker."""

    def test_who_answers_has_applied_the_change(self) -> None:
        """A topic is created, grown, configured and deleted through a broker that is not the
        controller, and each answer finds its broker at that change."""
        with Cluster(3) as cluster:
            result = cluster.create("t", 2, 3, through=2)
            assert (result.error_code, result.num_partitions, result.replication_factor) == (
                0,
                2,
                3,
            )
            image = cluster.image(2)
            assert image.topics["t"].id == result.topic_id
            assert {config.name for config in result.configs} >= {"retention.ms"}

            grow = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)],
                timeout_ms=1000,
            )
            [grown] = cluster.ask(3, grow, 3).results
            assert grown.error_code == 0
            assert len(cluster.image(3).topics["t"].partitions) == 4

            change = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=ResourceType.TOPIC,
                        resource_name="t",
                        configs=[AlterableConfig(name="retention.ms", value="5000")],
                    )
                ]
            )
            [changed] = cluster.ask(2, change, 1).responses
            assert changed.error_code == 0
            assert cluster.image(2).configs_of("t") == {"retention.ms": "5000"}
            describe = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=ResourceType.TOPIC,
                        resource_name="t",
                        configuration_keys=["retention.ms"],
                    )
                ]
            )
            [described] = cluster.ask(2, describe, 4).results
            assert described.configs[0].value == "5000"

            delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
            [deleted] = cluster.ask(3, delete, 6).responses
            assert deleted.error_code == 0
            assert cluster.image(3).topics == {}
            cluster.wait(lambda: not cluster.controller.image.deletions)

    def test_errors_are_the_controllers(self) -> None:
        """Codes and messages come through as they are."""
        with Cluster(2) as cluster:
            assert cluster.create("t", 1, 2, through=2).error_code == 0
            direct = cluster.create("t", 1, 2, through=1)
            forwarded = cluster.create("t", 1, 2, through=2)
            assert forwarded.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert forwarded == direct
            too_many = cluster.create("u", 1, 3, through=2)
            assert too_many.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert too_many == cluster.create("u", 1, 3, through=1)

    def test_leaders_are_elected_and_brokers_forgotten_through_any_broker(self) -> None:
        """The preferred leader leads again; a broker that does not come back is unregistered."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            elect = ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
            )
            [failed] = cluster.ask(3, elect, 2).replica_election_results
            code = failed.partition_result[0].error_code
            assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            cluster.brokers[2].start()
            cluster.wait(lambda: 2 in cluster.partition("t").isr)
            [elected] = cluster.ask(3, elect, 2).replica_election_results
            assert elected.partition_result[0].error_code == 0
            assert led_by(cluster, 2, seen_by=3), "who answers has applied the change"

            live = cluster.ask(3, UnregisterBrokerRequest(broker_id=2), 0)
            assert live.error_code == ErrorCode.INVALID_REQUEST
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.image(3).brokers[2].fenced)
            assert cluster.ask(3, UnregisterBrokerRequest(broker_id=2), 0).error_code == 0
            assert set(cluster.image(3).brokers) == {1, 3}
            again = cluster.ask(3, UnregisterBrokerRequest(broker_id=2), 0)
            assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    def test_producer_ids_are_never_given_twice(self) -> None:
        """Each broker has blocks of its own."""
        with Cluster(3) as cluster:
            given = [
                cluster.ask(broker_id, InitProducerIdRequest(transactional_id=None), 4).producer_id
                for broker_id in (1, 2, 3, 1, 2, 3)
            ]
            assert len(set(given)) == 6
            assert len({each // 1000 for each in given}) == 3

    def test_nobody_waits_for_a_broker_that_is_stopped(self) -> None:
        """A change through another broker is answered while one does not apply anything."""
        with Cluster(3) as cluster:
            cluster.brokers[3].node.pause()
            assert cluster.create("t", 1, 2, through=2).error_code == 0

    def test_without_a_controller_a_request_times_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """REQUEST_TIMED_OUT after the limit, as when Kafka cannot forward."""
        monkeypatch.setattr(remote_controller, "FORWARD_S_MAX", 2.0)
        with Cluster(3) as cluster:
            cluster.brokers[1].crash()
            result = cluster.create("t", 1, 2, through=2)
            assert result.error_code == ErrorCode.REQUEST_TIMED_OUT


class TestPieces:
    def test_a_broker_starts_from_an_image_in_many_pieces(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While topics are created, one piece after the other; it ends with the same image."""
        monkeypatch.setattr(feed_messages, "PIECE_BYTES_MAX", 200)
        with Cluster(3) as cluster:
            for n in range(20):
                assert cluster.create(f"topic{n}", 3, 2, through=1).error_code == 0
            cluster.brokers[3].crash()
            cluster.brokers[3].start()
            more = [cluster.client.task(cluster.create_task(f"more{n}", 2)) for n in range(10)]
            cluster.wait(lambda: cluster.brokers[3].started and all(e.done() for e in more))
            assert all(each.result().topics[0].error_code == 0 for each in more)
            cluster.wait(lambda: cluster.image(3) == cluster.controller.image)
            assert len(cluster.image(3).topics) == 30
            service: Any = cluster.brokers[1].broker.controller_service
            images = service._messages._images.values()
            assert max(len(image._pieces) for image in images) > 10


class TestControllerMoves:
    def test_brokers_follow_the_next_controller(self) -> None:
        """The controller's process is killed, another hosts it, with a higher epoch: a request
        that was under way is answered by the new one, and all brokers have its image."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=2).error_code == 0
            epoch = cluster.image(2).controller_epoch
            cluster.brokers[1].crash()
            asked = cluster.client.task(cluster.create_task("u", 2))
            cluster.simulation.run_for(0.5)
            assert not asked.done()
            cluster.host(3)
            cluster.wait(asked.done)
            assert asked.result().topics[0].error_code == 0
            cluster.wait(lambda: "u" in cluster.image(3).topics)
            assert cluster.image(2).controller_epoch == epoch + 1
            assert cluster.image(2).controller_id == 3
            assert set(cluster.image(2).topics) == {"t", "u"}

    def test_a_leader_that_died_as_the_controller_is_replaced_at_once(self) -> None:
        """The next controller dials every broker: nobody has a connection that it could lose."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(1, 2, 3)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 1, seen_by=1))
            assert produce(cluster, 1, "before") == 0
            cluster.brokers[1].crash()
            cluster.simulation.run_for(0.2)
            cluster.host(3)
            before_s = cluster.simulation.now_s
            cluster.wait(lambda: cluster.partition("t", seen_by=2).leader in (2, 3))
            assert cluster.simulation.now_s - before_s < 0.3
            leader = cluster.partition("t", seen_by=2).leader
            cluster.wait(lambda: led_by(cluster, leader, seen_by=leader))
            assert produce(cluster, leader, "after") == 1
            assert not cluster.image(2).brokers[2].fenced

    def test_a_broker_that_is_not_the_controller_says_so(self) -> None:
        """NOT_CONTROLLER, to all that is for the controller."""
        with Cluster(2) as cluster:
            for request in (
                FollowFeedRequest(),
                ForwardRequest(),
                RegisterBrokerRequest(),
                AllocateProducerIdsRequest(),
                AlterPartitionRequest(),
            ):
                version = type(request).__schema__.versions[1]  # type: ignore[index]
                answer = cluster.ask(2, request, version, INTERNAL_PORT)
                assert answer.error_code == ErrorCode.NOT_CONTROLLER, type(request).__name__


class TestForeignRequests:
    """What is for brokers is answered on their listener only."""

    @pytest.mark.parametrize("api", BROKER_API.values(), ids=lambda api: api.name)
    def test_a_clients_connection_is_closed(self, api: object) -> None:
        """On the listener of clients, by the controller's broker too."""
        with Cluster(1) as cluster:
            request = api.request()  # type: ignore[attr-defined]
            with pytest.raises(OSError, match=r"closed|reset"):
                cluster.ask(1, request, api.versions[1])  # type: ignore[attr-defined]
            assert cluster.create("t", 1, 1, through=1).error_code == 0

    def test_clients_are_not_shown_them(self) -> None:
        """On the brokers' listener only a broker is."""
        with Cluster(1) as cluster:
            client = ApiVersionsRequest(client_software_name="java", client_software_version="4")
            broker = ApiVersionsRequest(
                client_software_name="ottla-broker", client_software_version="1"
            )
            for request, port, shown in (
                (client, 9092, False),
                (client, INTERNAL_PORT, False),
                (broker, 9092, False),
                (broker, INTERNAL_PORT, True),
            ):
                keys = {each.api_key for each in cluster.ask(1, request, 4, port).api_keys}
                assert (BROKER_API.keys() <= keys) is shown
                assert bool(BROKER_API.keys() & keys) is shown

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (ForwardRequest(api_key=0), ErrorCode.INVALID_REQUEST),
            (ForwardRequest(api_key=18), ErrorCode.INVALID_REQUEST),
            (ForwardRequest(api_key=10_001), ErrorCode.INVALID_REQUEST),
            (ForwardRequest(api_key=19, api_version=7), ErrorCode.INVALID_REQUEST),
            (ForwardRequest(api_key=19, api_version=99), ErrorCode.INVALID_REQUEST),
            (ForwardRequest(api_key=19, api_version=-1), ErrorCode.INVALID_REQUEST),
            (
                ForwardRequest(api_key=19, api_version=7, request_data=b"\xff" * 40),
                ErrorCode.INVALID_REQUEST,
            ),
            (RegisterBrokerRequest(broker=b""), ErrorCode.INVALID_REQUEST),
            (RegisterBrokerRequest(broker=b"\xff" * 40), ErrorCode.INVALID_REQUEST),
            (
                FollowFeedRequest(broker_id=1, broker_epoch=2**40),
                ErrorCode.STALE_BROKER_EPOCH,
            ),
            (
                FollowFeedRequest(broker_id=77, broker_epoch=1),
                ErrorCode.BROKER_ID_NOT_REGISTERED,
            ),
            (AlterPartitionRequest(broker_id=1, broker_epoch=7), ErrorCode.STALE_BROKER_EPOCH),
            (
                AllocateProducerIdsRequest(broker_id=1, broker_epoch=2**40),
                ErrorCode.STALE_BROKER_EPOCH,
            ),
        ],
        ids=repr,
    )
    def test_what_makes_no_sense_has_an_error(self, request_: object, error: ErrorCode) -> None:
        """And the controller goes on."""
        with Cluster(1) as cluster:
            version = type(request_).__schema__.versions[1]  # type: ignore[attr-defined]
            answer = cluster.ask(1, request_, version, INTERNAL_PORT)
            assert ErrorCode(answer.error_code) == error
            assert cluster.create("t", 1, 1, through=1).error_code == 0
