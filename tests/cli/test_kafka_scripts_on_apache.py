"""Our scripts on a live Apache Kafka: nothing in them is for our own broker alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache.kafka import ApacheKafka
from tests.cli.apache_tools import ApacheTools
from tests.cli.compare import kafka_script
from tests.cli.state import State
from tests.cli.test_kafka_scripts import cases, normal, words_of

# What needs APIs that neither our broker nor our client has yet (SKIPPED.md).
NOT_YET = ("unregister", "kafka-broker-api-versions.sh")


@pytest.mark.long
@pytest.mark.apache
def test_scripts_answer_the_same_about_apache_kafka(
    tmp_path: Path, apache_tools: ApacheTools
) -> None:
    """Every command line gives on Apache Kafka what Kafka's own tools give there."""
    different = []
    (tmp_path / "files").mkdir()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        state = State(kafka.bootstrap, tmp_path / "files")
        try:
            for tool, line in cases():
                if any(word in line for word in NOT_YET):
                    continue
                theirs = apache_tools.run(tool, *words_of(line, state, "a"))
                ours = kafka_script(tool, *words_of(line, state, "o"))
                same = normal(theirs.out) == normal(ours.out)
                if min(theirs.code, 1) != ours.code or not same:
                    different.append(f"{line}\n  {theirs}\n  {ours}")
        finally:
            state.close()
    assert not different, "\n".join(different)
