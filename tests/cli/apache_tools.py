"""Kafka's own tools in one JVM that stays up: the start is paid once, each run costs little."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.apache import jars, java

PROGRAM = Path(__file__).with_name("ApacheTools.java")

TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log.sh": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-replica-verification.sh": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-groups.sh": "org.apache.kafka.tools.GroupsCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-console-share-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-share-consumer-perf-test.sh": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-delegation-tokens.sh": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-cluster.sh": "org.apache.kafka.tools.ClusterTool",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test.sh": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-e2e-latency.sh": "org.apache.kafka.tools.EndToEndLatency",
}


class Answer(NamedTuple):
    """What a tool left."""

    code: int
    out: str
    errors: str


class ApacheTools:
    """A JVM with all of Kafka's tools; use as a context manager."""

    def __enter__(self) -> Self:
        classes = java._compiled(PROGRAM)
        path = f"{classes}:{jars.classpath()}"
        self._process = subprocess.Popen(
            ["java", *java.QUICK_START, "-cp", path, PROGRAM.stem],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *arguments: str, text: str = "") -> Answer:
        """One run of a tool by its script's name."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = {"tool": TOOLS[tool], "arguments": list(arguments), "input": text}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM ended in {tool} {arguments}"
        return Answer(**json.loads(line))
