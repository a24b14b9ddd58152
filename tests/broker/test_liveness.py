"""Which brokers a controller takes for dead, and what becomes of their partitions."""

from __future__ import annotations

import pytest

from ottla.broker.broker_sessions import Dialled
from ottla.broker.liveness import Liveness
from ottla.broker.readiness import why_behind
from ottla.cluster.state import RegistrationRefused
from tests.broker.cluster_harness import (
    Cluster,
    ClusterBroker,
    led_by,
    produce,
    read,
)


class TestDeath:
    """Who is dead, who only seems so, and what becomes of the records."""

    def test_a_topic_outlives_its_leader(self) -> None:
        """Created through a broker that is not the controller, produced with acks=all; the leader
        is killed, another is elected at once, and no acknowledged record is lost."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
            sent = [f"record {n}" for n in range(5)]
            assert [produce(cluster, 2, value) for value in sent] == list(range(5))
            before_s = cluster.simulation.now_s
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            # Far below broker.session.timeout.ms: the controller has dialled it.
            assert cluster.simulation.now_s - before_s < 0.1
            left = cluster.partition("t")
            assert 2 not in left.isr
            cluster.wait(lambda: led_by(cluster, left.leader, seen_by=left.leader))
            leading = cluster.brokers[left.leader].broker.partitions.get("t", 0)
            assert leading is not None
            # Its followers have yet to say how much they have.
            cluster.wait(lambda: leading.high_watermark == leading.end_offset)
            assert read(cluster, left.leader) == sent
            assert produce(cluster, left.leader, "after") == 5
            cluster.brokers[2].start()
            cluster.wait(lambda: sorted(cluster.partition("t").isr) == [1, 2, 3])

    def test_silence_is_for_the_session_to_decide(self) -> None:
        """A machine without power, a stopped process: fenced after broker.session.timeout.ms."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
            before_s = cluster.simulation.now_s
            cluster.brokers[2].node.pause()
            cluster.wait(lambda: cluster.image(1).brokers[2].fenced)
            assert 9 - 2 <= cluster.simulation.now_s - before_s < 9 + 3
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            cluster.brokers[2].node.resume()
            cluster.wait(lambda: sorted(cluster.partition("t").isr) == [1, 2, 3])
            assert not cluster.image(1).brokers[2].fenced

    def test_a_lost_connection_of_a_living_broker_means_nothing(self) -> None:
        """It is dialled, is the same process, and polls again."""
        with Cluster(3) as cluster:
            cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
            number = cluster.image(3).number
            dialled = cluster.brokers[2].server.accepted["INTERNAL"]
            for _ in range(10):
                cluster.brokers[1].close_connections("broker2")
                cluster.simulation.run_for(1.7)
            assert cluster.image(3).number == number, "nothing was fenced, nothing elected"
            assert cluster.brokers[2].server.accepted["INTERNAL"] >= dialled + 10

    def test_a_dying_broker_that_took_one_more_connection_is_dialled_again_soon(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection is reset, which proves nothing; the next one is refused."""
        dial = Liveness.dial
        reset = []

        async def reset_once(liveness: Liveness, broker_id: int) -> Dialled:
            if not reset:
                reset.append(broker_id)
                return Dialled.SILENT
            return await dial(liveness, broker_id)

        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
            monkeypatch.setattr(Liveness, "dial", reset_once)
            before_s = cluster.simulation.now_s
            cluster.brokers[2].crash()
            cluster.wait(lambda: cluster.partition("t").leader in (1, 3))
            assert reset == [2]
            assert cluster.simulation.now_s - before_s < 0.1

    def test_more_than_half_at_once_makes_the_controller_doubt(self) -> None:
        """Cut off from two of three brokers it waits for twice the session, then they are fenced;
        when they are back they lead again."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: cluster.images_agree((1, 2, 3)))
            before_s = cluster.simulation.now_s
            for other in ("broker2", "broker3"):
                cluster.simulation.network.cut("broker1", other)
            cluster.wait(lambda: any(each.fenced for each in cluster.image(1).brokers.values()))
            assert 18 - 2 <= cluster.simulation.now_s - before_s < 18 + 3
            for other in ("broker2", "broker3"):
                cluster.simulation.network.heal("broker1", other)
            cluster.wait(lambda: sorted(cluster.partition("t").isr) == [1, 2, 3])

    def test_a_broker_that_stops_in_order_leads_nothing_when_it_is_gone(self) -> None:
        """Its leaders move before its server stops, its next start is a clean one."""
        with Cluster(3) as cluster:
            assert cluster.create("t", 1, 3, through=3, replicas=(2, 3, 1)).error_code == 0
            cluster.wait(lambda: led_by(cluster, 2, seen_by=2))
            produce(cluster, 2, "before")
            stopped = cluster.brokers[2]
            cluster.run(stopped.node, stopped.broker.controlled_shutdown())
            for seen_by in (1, 3):
                assert cluster.partition("t", seen_by=seen_by).leader in (1, 3)
                assert 2 not in cluster.partition("t", seen_by=seen_by).isr
            epoch = stopped.broker.epoch
            cluster.run(stopped.node, stopped.stop())
            stopped.crash()
            cluster.wait(lambda: cluster.image(1).brokers[2].fenced)
            stopped.start()
            cluster.wait(lambda: sorted(cluster.partition("t").isr) == [1, 2, 3])
            assert stopped.broker.logs.last_broker_epoch == epoch
            assert read(cluster, cluster.partition("t").leader) == ["before"]


class TestSecondProcess:
    """Two processes with one id."""

    def test_while_the_first_is_alive_the_second_is_refused(self) -> None:
        """At once, with a sentence; the first goes on."""
        with Cluster(3) as cluster:
            second = ClusterBroker(cluster, 2, "elsewhere")
            second.start()
            assert second.starting is not None
            cluster.wait(second.starting.done)
            with pytest.raises(RegistrationRefused, match="id 2 is running already"):
                second.starting.result()
            second.crash()
            assert cluster.simulation.now_s < 5
            cluster.simulation.run_for(20)
            assert not any(each.fenced for each in cluster.image(1).brokers.values())

    def test_the_second_replaces_a_first_that_is_dead(self) -> None:
        """The machine of the first is gone for good, or its process is."""
        with Cluster(3) as cluster:
            cluster.brokers[2].crash()
            second = ClusterBroker(cluster, 2, "elsewhere")
            second.start()
            cluster.wait(lambda: second.started)
            cluster.wait(lambda: not cluster.image(1).brokers[2].fenced)
            assert cluster.image(1).brokers[2].endpoints["PLAINTEXT"].host == "elsewhere"
            assert cluster.simulation.now_s < 5

    def test_silence_makes_the_second_wait_for_the_session(self) -> None:
        """The first is stopped: nobody knows whether it comes back."""
        with Cluster(3) as cluster:
            cluster.brokers[2].node.pause()
            second = ClusterBroker(cluster, 2, "elsewhere")
            second.start()
            cluster.simulation.run_for(6)
            assert not second.started
            cluster.wait(lambda: second.started)
            assert 7 < cluster.simulation.now_s < 13


class TestReadiness:
    """What a broker answers at /readyz: whether it has caught up with the cluster's changes."""

    def test_a_broker_is_ready_while_it_follows_the_controller(self) -> None:
        """Not when it is cut off, nor right after a pause in which it may have been fenced; again
        when it has caught up."""
        with Cluster(3) as cluster:
            brokers = [cluster.brokers[each] for each in (1, 2, 3)]
            cluster.wait(lambda: not any(why_behind(each.broker) for each in brokers))
            cluster.simulation.network.cut("broker1", "broker3")
            cluster.wait(lambda: bool(why_behind(brokers[2].broker)))
            assert "cannot be followed" in why_behind(brokers[2].broker)
            assert not why_behind(brokers[1].broker)
            cluster.simulation.network.heal("broker1", "broker3")
            cluster.wait(lambda: not why_behind(brokers[2].broker))
            brokers[1].node.pause()
            cluster.wait(lambda: cluster.image(1).brokers[2].fenced)
            brokers[1].node.resume()
            assert "has not answered for" in why_behind(brokers[1].broker)
            cluster.wait(lambda: not why_behind(brokers[1].broker))
            assert not cluster.image(1).brokers[2].fenced
