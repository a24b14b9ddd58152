"""Ottla answers every request of the suite as Apache Kafka 4.3.1 does.

Both brokers are live and fresh. `OTTLA_DIFFERENTIAL=self` puts a second Apache Kafka in Ottla's
place, which shows whether the cases themselves are sound.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from tests import needs
from tests.apache import messages
from tests.apache.client import RawClient
from tests.apache.kafka import ApacheKafka
from tests.differential.allowed import OTHER_ANSWERS
from tests.differential.case import Case, all_cases
from tests.differential.normal import differences
from tests.differential.peer import Peer
from tests.live import Server

pytestmark = pytest.mark.apache

LINES_MAX = 40
APIS = (
    "ApiVersions",
    "Metadata",
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "WriteTxnMarkers",
    "DescribeTransactions",
    "ListTransactions",
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DeleteRecords",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "ListConfigResources",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DescribeLogDirs",
    "DescribeProducers",
    "UpdateFeatures",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "ListGroups",
    "DescribeGroups",
    "DeleteGroups",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "ReadShareGroupStateSummary",
    "DeleteShareGroupState",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "UnregisterBroker",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
)
# Further options of the suite's Apache Kafka.
OPTIONS = {
    "node.id": 1,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Each change is assigned at once, whenever it comes.
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "share.coordinator.state.topic.num.partitions": 1,
    # The records are years old: a round of retention would fall into either broker's cases.
    "log.initial.task.delay.ms": 3_600_000,
}
KAFKA_OPTIONS = {
    "log_initial_task_delay_ms": "3600000",
    "group_consumer_assignment_interval_ms": "0",
    "group_share_assignment_interval_ms": "0",
    "share_coordinator_state_topic_num_partitions": "1",
}


class Broker(Protocol):
    port: int


@dataclass
class Pair:
    """The specification, and who is held to it."""

    kafka: Broker
    ottla: Broker


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A fresh Apache Kafka and a fresh Ottla with the same settings."""
    needs.apache()
    folder = tmp_path_factory.mktemp("differential")
    with ApacheKafka(folder / "kafka", **KAFKA_OPTIONS) as kafka:
        warm(kafka)
        if os.environ.get("OTTLA_DIFFERENTIAL") == "self":
            with ApacheKafka(folder / "second", **KAFKA_OPTIONS) as second:
                warm(second)
                yield Pair(kafka, second)
        else:
            with Server(folder / "ottla", settings=OPTIONS) as ottla:
                yield Pair(kafka, ottla)


def warm(kafka: ApacheKafka) -> None:
    """The first producer id is only there after Kafka's broker has asked its controller."""
    with RawClient(kafka.port) as client:
        while client.ask("InitProducerId", 1, {"transactional_id": None})["error_code"]:
            time.sleep(0.01)


@pytest.mark.parametrize("case", [pytest.param(each, id=each.id) for each in all_cases()])
def test_same_answers(pair: Pair, case: Case) -> None:
    """The decoded answers of both brokers are equal but for the allowed differences.

    What differs is asked once more, of both: on a busy machine Kafka's threads answer a few things
    now one way and now another, and either is its specification. A warning tells of it.
    """
    prefix = case.id.replace("_", "-").lower()
    if not (lines := different(pair, case, prefix)):
        return
    if again := different(pair, case, f"{prefix}-again"):
        pytest.fail("\n".join(again[:LINES_MAX]), pytrace=False)
    warnings.warn(f"{case.id} differed once: {lines[:LINES_MAX]}", stacklevel=1)


def different(pair: Pair, case: Case, prefix: str) -> list[str]:
    with Peer(pair.kafka.port, prefix) as expected:
        case.body(expected, case.version)
    with Peer(pair.ottla.port, prefix) as found:
        case.body(found, case.version)
    lines = []
    for left, right in zip(expected.steps, found.steps, strict=False):
        if any(each.covers(case.id, left.label) for each in OTHER_ANSWERS):
            continue
        lines += [f"{left.label}: {line}" for line in differences(left.answer, right.answer)]
    if len(expected.steps) != len(found.steps):
        lines.append(
            f"{len(expected.steps)} steps with Apache Kafka, {len(found.steps)} with Ottla"
        )
    return lines


def test_every_version_is_covered() -> None:
    """No stable version of any API of ours is without a case."""
    if os.environ.get("OTTLA_DIFFERENTIAL_CASES"):
        pytest.skip("only some of the cases are here")
    counted = Counter((each.api, each.version) for each in all_cases())
    missing = [
        f"{api} v{version}"
        for api in APIS
        for version in messages.versions(api)
        if not counted[api, version]
    ]
    assert not missing
