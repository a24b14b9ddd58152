"""What docs/testing.md shows for Spark does what it says."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.testing.docs import blocks, run


def test_the_examples_with_spark(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    """They run on this session and the plugin's broker, and pass."""
    (shown,) = (each for each in blocks("testing.md") if "pyspark" in each)
    assert run(shown, request, {}) == ["test_totals", "test_a_stream_from_topic_to_topic"]
