"""examples/agent/status_codes.py on what the agent of examples/agent/nginx.conf writes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Producer
from ottla.testing import consume_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Broker

pytestmark = [pytest.mark.timeout(300), pytest.mark.spark]
EXAMPLE = Path(__file__).parents[2] / "examples" / "agent" / "status_codes.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("status_codes", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.status_codes


def test_status_codes_are_counted_by_header(spark: SparkSession, ottla_broker: Broker) -> None:
    """The header decides, among others; a line without one is counted under "-"."""
    servers = ottla_broker.bootstrap_servers
    statuses = ["200"] * 5 + ["404"] * 2 + [None]
    with Producer(bootstrap_servers=servers) as producer:
        for status in statuses:
            headers = [("path", b"/200"), ("status", status.encode())] if status else None
            producer.send("access", b"a line", headers=headers)
    example().past(spark, bootstrap_servers=servers)
    found = [json.loads(record.value) for record in consume_all(ottla_broker, "status-codes")]
    counts = {row["status"]: row["requests"] for row in found}
    assert counts == {"200": 5, "404": 2, "-": 1}
