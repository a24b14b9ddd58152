"""A rolling upgrade from one level of `ottla.metadata.version` to the next, with records under way.

A process of level 1 is one whose `ottla.metadata.version.max` says so: it can neither write nor
read what belongs to level 2.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.cluster.elections import NOBODY
from ottla.cluster.features import metadata_level
from ottla.cluster.image import Levels
from ottla.cluster.nodes import METADATA_LEVEL
from ottla.cluster.registration import write_registration
from ottla.cluster.requests import NewToken, TokenOutcome, UpgradeType
from ottla.cluster.state import RegistrationRefused
from ottla.metadata_store.tree import CorruptTree
from ottla.security.principal import user
from ottla.testing.simulation.connection import Connection
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.cluster_harness import Cluster, read
from tests.broker.harness import produce_request

OLD, NEW = Levels(1, 1), Levels(1, 2)
LIMIT = "ottla.metadata.version.max"
IDS = (1, 2, 3)


class Load:
    """A producer with acks=all that sends one record after the other until `stopped`."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: list[str] = []
        self.stopped = False
        self._cluster = cluster
        self._task = cluster.client.task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self.stopped:
            number += 1
            if await self._sent(f"record {number}"):
                self.acknowledged.append(f"record {number}")
            else:
                await asyncio.sleep(0.05)

    async def _sent(self, value: str) -> bool:
        cluster = self._cluster
        alive = [each.broker for each in cluster.brokers.values() if each.started]
        image = max((each.image for each in alive), key=lambda image: image.number)
        found = image.partition("t", 0)
        if found is None or found.leader < 0:
            return False
        batch = write_batch([Record(value.encode(), timestamp=cluster.client.clock.now_ms())])
        try:
            connection = await Connection.open(cluster.client, f"broker{found.leader}")
            try:
                answer = await connection.ask(produce_request("t", 0, batch), 9)
            finally:
                connection.close()
        except (OSError, TimeoutError):
            return False
        return bool(answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE)

    def stop(self) -> list[str]:
        self.stopped = True
        self._cluster.wait(self._task.done)
        return self.acknowledged


def update(cluster: Cluster, level: int, through: int, kind: UpgradeType) -> tuple[int, str]:
    """Ask a broker for another level; the error, if any."""
    key = FeatureUpdateKey(feature=METADATA_LEVEL, max_version_level=level, upgrade_type=kind)
    answer = cluster.ask(through, UpdateFeaturesRequest(feature_updates=[key]), 2)
    return answer.error_code, answer.error_message or ""


def whole(cluster: Cluster) -> None:
    """Wait until every broker is in the ISR and has the controller's image."""
    cluster.wait(lambda: all(each.started for each in cluster.brokers.values()))
    cluster.wait(lambda: len(decided(cluster).isr) == len(IDS))
    cluster.wait(lambda: all(cluster.image(each).number == number(cluster) for each in IDS))


def decided(cluster: Cluster) -> Any:
    return cluster.controller.image.partition("t", 0)


def number(cluster: Cluster) -> int:
    return cluster.controller.image.number


def levels_at(cluster: Cluster, seen_by: int) -> list[Levels]:
    return [cluster.image(seen_by).brokers[each].levels for each in IDS]


def replace(cluster: Cluster, broker_id: int, level: int) -> None:
    """Stop a broker in order, which is not the controller, and start another version of it."""
    broker = cluster.brokers[broker_id]
    cluster.run(broker.node, broker.stop())
    broker.crash()
    broker.settings[LIMIT] = level
    broker.start()
    whole(cluster)


def move_controller(cluster: Cluster, to: int) -> None:
    """Kill the controller's process, have another one be it, and start the same version again."""
    former = cluster.brokers[cluster.controller_id]
    former.crash()
    cluster.host(to)
    former.start()
    whole(cluster)


def refused_start(cluster: Cluster, broker_id: int, level: int) -> BaseException:
    """What a broker of another version cannot start with."""
    broker = cluster.brokers[broker_id]
    broker.crash()
    broker.settings[LIMIT] = level
    broker.start()
    starting = broker.starting
    assert starting is not None
    cluster.wait(starting.done)
    error = starting.exception()
    assert error is not None
    broker.crash()
    return error


def test_brokers_are_replaced_one_by_one_and_then_the_level_is_raised() -> None:
    """Both versions follow controllers of both; no acknowledged record is lost on the way."""
    with Cluster(3, ottla_metadata_version_max=1) as cluster:
        assert cluster.create("t", 1, 3, through=1, replicas=(2, 3, 1)).error_code == 0
        whole(cluster)
        load = Load(cluster)
        replace(cluster, 2, 2)
        assert cluster.controller.image.brokers[2].levels == NEW
        for asked in (1, 2):
            code, message = update(cluster, 2, asked, UpgradeType.UPGRADE)
            assert code == ErrorCode.INVALID_UPDATE_VERSION
            assert "Local controller 1 only supports versions 1-1" in message
        move_controller(cluster, 2)  # a new one, which old ones follow
        assert cluster.create("of-new", 1, 3, through=3).error_code == 0
        code, message = update(cluster, 2, 3, UpgradeType.UPGRADE)
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Broker 1 only supports versions 1-1" in message
        move_controller(cluster, 3)  # an old one, which a new one follows
        assert cluster.create("of-old", 1, 3, through=2).error_code == 0
        replace(cluster, 1, 2)
        move_controller(cluster, 1)
        replace(cluster, 3, 2)
        assert levels_at(cluster, 3) == [OLD] * 3  # level 1 has no place for it
        assert [cluster.controller.image.brokers[each].levels for each in IDS] == [NEW] * 3
        assert update(cluster, 2, 3, UpgradeType.UPGRADE) == (0, "")
        whole(cluster)
        for each in IDS:
            assert metadata_level(cluster.image(each).features) == 2
            assert levels_at(cluster, each) == [NEW] * 3
        error = refused_start(cluster, 3, 1)
        assert isinstance(error, RegistrationRefused)
        assert str(error) == (
            "Unable to register because the broker does not support finalized version 2 of "
            "ottla.metadata.version, only 1-1."
        )
        cluster.brokers[3].settings[LIMIT] = 2
        cluster.brokers[3].start()
        whole(cluster)
        acknowledged = load.stop()
        assert len(acknowledged) > 100
        cluster.wait(lambda: cluster.image(decided(cluster).leader).number == number(cluster))
        kept = read(cluster, decided(cluster).leader)
        assert set(acknowledged) <= set(kept)
        assert [each for each in kept if each in set(acknowledged)] == acknowledged


def test_a_controller_of_an_earlier_level_does_not_take_over() -> None:
    """A process that does not understand the tree leaves it as it is, and says why."""
    with Cluster(3) as cluster:
        error = refused_start(cluster, 1, 1)
        assert isinstance(error, CorruptTree)
        assert "the cluster has level 4 of ottla.metadata.version" in str(error)
        assert "understands 1 to 1" in str(error)
        cluster.host(2)
        assert cluster.controller.image.controller_epoch == 2  # the one after the first


def test_delegation_tokens_come_with_their_level() -> None:
    """Until it is raised each broker says that there are none; then all know them."""
    alice = user("alice")
    with Cluster(3, ottla_metadata_version_max=3, delegation_token_secret_key="key") as cluster:
        assert cluster.create("t", 1, 3, through=1).error_code == 0
        whole(cluster)
        replace(cluster, 2, 4)
        replace(cluster, 3, 4)

        def ask(broker_id: int) -> TokenOutcome:
            broker = cluster.brokers[broker_id]
            asked = broker.broker.controller.change_token(NewToken(alice, alice))
            outcome = cluster.run(broker.node, asked)
            assert isinstance(outcome, TokenOutcome)
            return outcome

        for each in IDS:  # the controller is of the earlier version
            assert ask(each).error_code == ErrorCode.UNSUPPORTED_VERSION
        move_controller(cluster, 2)
        replace(cluster, 1, 4)
        assert update(cluster, 4, 3, UpgradeType.UPGRADE) == (0, "")
        whole(cluster)
        made = ask(1)
        assert made.error_code == ErrorCode.NONE
        whole(cluster)
        for each in IDS:
            assert list(cluster.image(each).tokens.values()) == [made.token]
        code, message = update(cluster, 3, 1, UpgradeType.SAFE_DOWNGRADE)
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert "it might delete metadata information" in message


@pytest.mark.parametrize("kind", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_a_level_that_keeps_nothing_may_be_left_again(kind: UpgradeType) -> None:
    """After the downgrade a broker of the earlier version takes part again."""
    with Cluster(3, ottla_metadata_version_max=2) as cluster:
        assert cluster.create("t", 1, 3, through=1).error_code == 0
        code, message = update(cluster, 1, 2, UpgradeType.UPGRADE)
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Can't downgrade the version of this feature" in message
        assert update(cluster, 1, 2, kind) == (0, "")
        replace(cluster, 3, 1)
        assert metadata_level(cluster.image(3).features) == 1


def test_the_level_that_keeps_who_may_do_what_is_not_left_again() -> None:
    """Brokers of the earlier one would not learn of ACLs."""
    with Cluster(1) as cluster:
        code, message = update(cluster, 2, 1, UpgradeType.SAFE_DOWNGRADE)
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert "it might delete metadata information" in message


def test_a_controller_learns_from_polls_what_brokers_understand() -> None:
    """They may have registered with one of a version that did not keep it."""
    with Cluster(3) as cluster:
        state = cluster.controller._state
        known = state.image.brokers[2]
        forgotten = known._replace(levels=Levels())
        cluster.run(cluster.brokers[1].node, write_registration(state, forgotten, NOBODY))
        assert cluster.controller.image.brokers[2].levels == Levels()
        cluster.wait(lambda: cluster.controller.image.brokers[2] == known)
