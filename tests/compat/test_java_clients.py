"""Apache's own Java producer, consumer and admin client work with a live Ottla, unchanged.

One JVM does it all; each test looks at one part of what it said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache import java
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("java_clients")]

PROGRAM = Path(__file__).with_name("JavaClients.java")
Said = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the program printed, by its subject."""
    needs.apache()
    # The records have old times: on a busy machine they must outlast the first check of retention.
    settings = {"log.initial.task.delay.ms": 3_600_000}
    with Server(tmp_path_factory.mktemp("java") / "data", settings=settings) as server:
        lines = java.run_json(PROGRAM, server.bootstrap)
    return {f"{line['what']} {line.get('codec', '')}".strip(): line for line in lines}


def test_topics_are_made_and_described(said: Said) -> None:
    """Creation with counts, defaults and assignments; listing; growing; cluster and features."""
    topics = said["topics"]
    codecs = ["java-gzip", "java-lz4", "java-none", "java-snappy", "java-zstd"]
    assert topics["listed"] == sorted([*codecs, "java-assigned", "java-defaults", "java-large"])
    assert (topics["partitions"], topics["leader"], topics["grown"]) == (3, 1, 4)
    assert (topics["nodes"], topics["log_dirs"], topics["features"]) == (1, 1, True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_went(said: Said, codec: str) -> None:
    """Keys, nulls, headers and times of an idempotent producer, in every compression."""
    trip = said[f"round trip {codec}"]
    assert (trip["sent"], trip["places"], trip["read"], trip["same"]) == (300, 300, 300, 300)


def test_large_values(said: Said) -> None:
    """Nearly a megabyte in one record."""
    assert (said["large"]["read"], said["large"]["same"]) == (1, True)


def test_offsets_by_time(said: Said) -> None:
    """Earliest, latest, the greatest time, the first at or after a time, and none."""
    offsets = said["offsets"]
    assert (offsets["earliest"], offsets["latest"], offsets["max"]) == (0, 100, 99)
    assert (offsets["by_time"], offsets["too_late"], offsets["producers"]) == (33, -1, 1)


def test_configs_are_changed(said: Said) -> None:
    """Set, removed and appended to, and shown with all their defaults."""
    configs = said["configs"]
    assert (configs["before"], configs["after"]) == ("12345", "604800000")
    assert (configs["policy"], configs["limit"]) == ("delete,compact", "5000")
    assert configs["count"] > 25
    assert configs["broker"] is True


def test_records_and_topics_are_deleted(said: Said) -> None:
    """The log starts later, and a deleted topic is listed no more."""
    deletions = said["deletions"]
    assert (deletions["low_watermark"], deletions["first"]) == (40, 40)
    assert deletions["gone"] is True


def test_mistakes_have_their_names(said: Said) -> None:
    """Each wrong request is answered with the error that Java knows it by."""
    assert said["mistakes"]["seen"] == [
        "TopicExistsException",
        "InvalidReplicationFactorException",
        "InvalidTopicException",
        "UnknownTopicOrPartitionException",
        "InvalidConfigurationException",
        "RecordTooLargeException",
        "InvalidRecordException",
    ]
