"""The options of the sink, read once on the driver.

`kafka.*` goes to the client by the names Kafka gives it; `topic` is that of Spark's connector, the
rest is our own. Names come from Spark in any case.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..broker_wait import BROKER_TIMEOUT, JAVA_SECURITY
from ..source.option_values import duration_ms
from .parcels import CARRIERS
from .rows import SinkError

DELIVERIES = ("exactly-once", "at-least-once")
OWN = ("topic", "delivery", "ledger", "staging", "stagingdirectory", "brokertimeout")
NEAR = 0.8  # so alike are names that were meant; Spark passes options of its own as well
BATCH_BYTES = 512 * 1024
REQUEST_TIMEOUT_MS = 30_000  # the client's defaults
DELIVERY_TIMEOUT_MS = 120_000
REQUEST_MARGIN = 1024  # what a request has besides its batches
# What the sink decides itself, and why.
TAKEN = {
    "kafka.key.serializer": "keys are written as they are: cast the column in the DataFrame",
    "kafka.value.serializer": "values are written as they are: cast the column in the DataFrame",
    "kafka.enable.idempotence": "every delivery here is idempotent",
    "kafka.interceptor.classes": "whole batches are sent, not single records",
    "kafka.partitioner.class": "use the column 'partition'",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """`properties` are the client's; `name` is the transactional id, if the user gave one."""

    properties: dict[str, Any] = field(repr=False)  # passwords among them
    topic: str | None
    exactly_once: bool
    accept: bool
    carrier: str
    staging_root: str | None
    name: str | None
    compression: str
    batch_bytes: int
    # From ottla.spark.write: the ledger's batch.
    batch: int | None
    # How long to wait for a broker that answered before.
    broker_timeout_ms: int

    @property
    def patient(self) -> dict[str, Any]:
        """The client's properties where a broker has answered before, so in tasks and commits: it
        waits for one that is away. What the user said prevails, except about a first broker."""
        request_ms = int(self.properties.get("request.timeout.ms", REQUEST_TIMEOUT_MS))
        return {
            "max.block.ms": self.broker_timeout_ms,
            "delivery.timeout.ms": max(self.broker_timeout_ms, request_ms),
            **self.properties,
            "bootstrap.timeout.ms": self.broker_timeout_ms,
        }

    @property
    def retry_s(self) -> float:
        """How long a commit that a broker refuses is tried again."""
        return float(self.properties.get("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)) / 1000


def read_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options; raises SinkError with the advice."""
    given = {name.lower(): value for name, value in options.items()}
    for name, reason in TAKEN.items():
        if name in given:
            raise SinkError(f"option {name} is not for a sink: {reason}")
    for name in given:
        close = difflib.get_close_matches(name, OWN, 1, NEAR)
        if name not in OWN and close:
            raise SinkError(f"option {name} does not exist\nTry: {close[0]}")
    properties: dict[str, Any] = {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name.startswith("kafka.") and name.removeprefix("kafka.") not in JAVA_SECURITY
    }
    if not properties.get("bootstrap.servers"):
        raise SinkError(
            'no broker to write to\nTry: .option("kafka.bootstrap.servers", "localhost:9092")'
        )
    batch = given.get("ottla.batch")
    return SinkOptions(
        name=properties.pop("transactional.id", None),
        compression=str(properties.pop("compression.type", "none")).lower(),
        batch_bytes=_batch_bytes(properties),
        properties=properties,
        topic=given.get("topic"),
        exactly_once=_choice(given, "delivery", DELIVERIES) == DELIVERIES[0],
        accept=_choice(given, "ledger", ("strict", "accept")) == "accept",
        carrier=_choice(given, "staging", CARRIERS),
        staging_root=given.get("stagingdirectory"),
        batch=None if batch is None else int(batch),
        broker_timeout_ms=_broker_timeout_ms(given),
    )


def _broker_timeout_ms(given: Mapping[str, str]) -> int:
    text = given.get("brokertimeout", BROKER_TIMEOUT)
    try:
        return duration_ms(text)
    except ValueError as rule:
        raise SinkError(f"option brokerTimeout must be {rule} (got {text!r})") from None


def _batch_bytes(properties: dict[str, Any]) -> int:
    """How large the batches get; one must fit into a request."""
    wanted = int(properties.pop("batch.size", BATCH_BYTES))
    request = properties.get("max.request.size")
    return wanted if request is None else min(wanted, max(int(request) - REQUEST_MARGIN, 1))


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first is the default."""
    value = given.get(name.lower(), choices[0])
    if value not in choices:
        raise SinkError(f"option {name} is {value!r}, and must be one of: {', '.join(choices)}")
    return value
