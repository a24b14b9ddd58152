"""One command line through Kafka's tool and through our script, on the same broker."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from importlib import import_module

from ottla.cli.kafka_scripts.running import guarded
from tests.cli.apache_tools import Answer


def kafka_script(tool: str, *arguments: str, text: str = "") -> Answer:
    """Our script's answer, run inside this process."""
    module = import_module(f"ottla.cli.kafka_scripts.{MODULES[tool]}")
    return Answer(*captured(lambda: guarded(module.run, arguments), text))


def captured(call: Callable[[], int], text: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a call, with this standard input."""
    out, errors = Written(), Written()
    old = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = call()
    finally:
        sys.stdin = old
    return code, out.text(), errors.text()


class Written(io.TextIOWrapper):
    """A stream that keeps what is written, as text or as bytes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8", "replace")


MODULES = {
    "kafka-topics.sh": "topics",
    "kafka-console-producer.sh": "console_producer",
    "kafka-console-consumer.sh": "console_consumer",
    "kafka-consumer-groups.sh": "consumer_groups",
    "kafka-configs.sh": "configs",
    "kafka-get-offsets.sh": "get_offsets",
    "kafka-delete-records.sh": "delete_records",
    "kafka-dump-log.sh": "dump_log",
    "kafka-log-dirs.sh": "log_dirs",
    "kafka-leader-election.sh": "leader_election",
    "kafka-replica-verification.sh": "replica_verification",
    "kafka-reassign-partitions.sh": "reassign_partitions",
    "kafka-broker-api-versions.sh": "broker_api_versions",
    "kafka-transactions.sh": "transactions",
    "kafka-groups.sh": "groups",
    "kafka-share-groups.sh": "share_groups",
    "kafka-console-share-consumer.sh": "console_share_consumer",
    "kafka-share-consumer-perf-test.sh": "share_consumer_perf_test",
    "kafka-acls.sh": "acls",
    "kafka-delegation-tokens.sh": "delegation_tokens",
    "kafka-features.sh": "features",
    "kafka-cluster.sh": "cluster",
    "kafka-storage.sh": "storage",
    "kafka-producer-perf-test.sh": "producer_perf_test",
    "kafka-consumer-perf-test.sh": "consumer_perf_test",
    "kafka-e2e-latency.sh": "e2e_latency",
    "kafka-server-start.sh": "server_start",
    "kafka-server-stop.sh": "server_stop",
}
