"""Bodies broken in their structure: every array and string of a request null, negative or huge.

The rest of each request is well formed and asks for nothing that exists, so that what is compared
is the reading alone: taken as empty, refused with a code, or the connection closed.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from typing import Any

from tests.apache import messages
from tests.apache.batches import batch
from tests.apache.messages import Fields, Raw
from tests.differential.case import case
from tests.differential.peer import Peer

NOWHERE = "nowhere"
PART: Fields = {"partition_index": 0, "timestamp": -1}

# One of everything, about topics that are not there; validate_only where something could be made.
WHOLE: dict[str, Fields] = {
    "Metadata": {"topics": [{"name": NOWHERE}], "allow_auto_topic_creation": False},
    "ListOffsets": {"replica_id": -1, "topics": [{"name": NOWHERE, "partitions": [PART]}]},
    "Produce": {
        "acks": 1,
        "timeout_ms": 100,
        "topic_data": [
            {"name": NOWHERE, "partition_data": [{"index": 0, "records": batch(1)}]},
        ],
    },
    "Fetch": {
        "max_wait_ms": 0,
        "session_epoch": -1,
        "topics": [{"topic": NOWHERE, "partitions": [{"partition": 0}]}],
        "forgotten_topics_data": [{"topic": NOWHERE, "partitions": [0]}],
        "rack_id": "rack",
    },
    "CreateTopics": {
        "topics": [
            {
                "name": NOWHERE,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
                "configs": [{"name": "retention.ms", "value": "1"}],
            },
        ],
        "timeout_ms": 1000,
        "validate_only": True,
    },
    "DeleteTopics": {"topic_names": [NOWHERE], "topics": [{"name": NOWHERE}], "timeout_ms": 1000},
    "CreatePartitions": {
        "topics": [{"name": NOWHERE, "count": 2, "assignments": [{"broker_ids": [1]}]}],
        "timeout_ms": 1000,
        "validate_only": True,
    },
    "DeleteRecords": {
        "topics": [{"name": NOWHERE, "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout_ms": 1000,
    },
    "OffsetForLeaderEpoch": {
        "replica_id": -1,
        "topics": [{"topic": NOWHERE, "partitions": [{"partition": 0}]}],
    },
    "DescribeConfigs": {
        "resources": [
            {"resource_type": 2, "resource_name": NOWHERE, "configuration_keys": ["flush.ms"]},
        ],
    },
    "IncrementalAlterConfigs": {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": NOWHERE,
                "configs": [{"name": "flush.ms", "value": "1"}],
            },
        ],
        "validate_only": True,
    },
    "DescribeLogDirs": {"topics": [{"topic": NOWHERE, "partitions": [0]}]},
    "DescribeProducers": {"topics": [{"name": NOWHERE, "partition_indexes": [0]}]},
    "DescribeTopicPartitions": {
        "topics": [{"name": NOWHERE}],
        "response_partition_limit": 10,
        "cursor": {"topic_name": NOWHERE, "partition_index": 0},
    },
    "ElectLeaders": {
        "election_type": 0,
        "topic_partitions": [{"topic": NOWHERE, "partitions": [0]}],
        "timeout_ms": 1000,
    },
    "ListConfigResources": {"resource_types": [2]},
    "UpdateFeatures": {
        "timeout_ms": 1000,
        "feature_updates": [{"feature": "no.such", "max_version_level": 1}],
        "validate_only": True,
    },
}

NOT_UTF8 = b"\xff\xfe\xc3"


def places(api: str, version: int) -> Iterator[tuple[list[Any], Fields]]:
    """The path to every array and string of the request that this version has."""
    message = messages.facts()[f"{api}Request"]
    yield from _places(message, message.fields, WHOLE[api], version, [])


def _places(
    message: messages.Message,
    fields: tuple[Fields, ...],
    value: Fields,
    version: int,
    path: list[Any],
) -> Iterator[tuple[list[Any], Fields]]:
    for field in fields:
        name, kind = messages.snake(field["name"]), field["type"]
        first, last = messages.bounds(field.get("versions"))
        if name not in value or field.get("taggedVersions") or not first <= version <= last:
            continue
        here = [*path, name]
        if kind.startswith("[]") or kind in ("string", "records"):
            yield here, field
        inner = value[name]
        if kind.startswith("[]") and inner and isinstance(inner[0], dict):
            members = messages.members(message, field, kind[2:])
            yield from _places(message, members, inner[0], version, [*here, 0])


def lengths(kind: str, flexible: bool) -> dict[str, bytes]:
    """Length prefixes that no right value has."""
    if flexible:
        return {
            "null": b"\x00",
            "huge": messages.unsigned(2**31 - 1),
            "more than int32": messages.unsigned(2**32 - 1),
            "endless varint": b"\xff" * 6,
        }
    code = ">h" if kind == "string" else ">i"
    top = 32767 if kind == "string" else 2**31 - 1
    return {
        "null": struct.pack(code, -1),
        "minus two": struct.pack(code, -2),
        "huge": struct.pack(code, top),
    }


def replaced(fields: Fields, path: list[Any], raw: bytes) -> Fields:
    changed = copy.deepcopy(fields)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = Raw(raw)
    return changed


def _register(api: str) -> None:
    @case(api)
    def wrong_lengths(peer: Peer, version: int) -> None:
        flexible = messages.facts()[f"{api}Request"].flexible(version)
        for path, field in places(api, version):
            for label, raw in lengths(field["type"], flexible).items():
                where = ".".join(map(str, path))
                if (api, where, label) == ("Metadata", "topics", "null"):
                    continue  # a right question, for all topics there are
                fields = replaced(WHOLE[api], path, raw)
                peer.ask(api, version, fields, f"{where}: {label}")

    @case(api)
    def not_text(peer: Peer, version: int) -> None:
        flexible = messages.facts()[f"{api}Request"].flexible(version)
        size = messages.unsigned(len(NOT_UTF8) + 1) if flexible else struct.pack(">h", 3)
        for path, field in places(api, version):
            if field["type"] == "string":
                fields = replaced(WHOLE[api], path, size + NOT_UTF8)
                peer.ask(api, version, fields, ".".join(map(str, path)))


for _name in WHOLE:
    _register(_name)
