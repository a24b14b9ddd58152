"""kafka-delete-records.sh: forget the records below given offsets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ottla.cli.failure import Failure
from ottla.client.structs import TopicPartition

from .options import BOOTSTRAP, COMMAND_CONFIG, Option, Parser
from .running import admin_of, entry

PARSER = Parser(
    "kafka-delete-records.sh",
    "delete records below given offsets",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option(
            "offset-json-file",
            "FILE",
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}; '
            "offset -1 is the end",
            required=True,
        ),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaError

    from .consumer_groups import java_error

    given = PARSER.parse(arguments)
    path = given.value("offset-json-file")
    try:
        with open(path, encoding="utf-8") as file:
            offsets = offsets_in(json.load(file))
    except OSError:
        raise Failure(f"Unable to read file {path}", "a file that is there") from None
    except ValueError as error:
        raise Failure(str(error), f"{PARSER.tool} --help") from None
    with admin_of(given) as admin:
        print("Executing records delete operation")
        lines = []
        for each, offset in offsets.items():
            try:
                low = admin.delete_records({each: offset})[each]["low_watermark"]
                lines.append(f"partition: {each.topic}-{each.partition}\tlow_watermark: {low}")
            except KafkaError as error:
                text = java_error(type(error).__name__)
                lines.append(f"partition: {each.topic}-{each.partition}\terror: {text}")
        print("Records delete operation completed:")
        for line in lines:
            print(line)
    return 0


def offsets_in(plan: Any) -> dict[TopicPartition, int]:
    if not isinstance(plan, dict) or not isinstance(plan.get("partitions"), list):
        raise ValueError("Missing partitions field")
    if plan.get("version", 1) != 1:
        raise ValueError(f"Not supported version field value {plan['version']}")
    pairs = [
        (TopicPartition(each["topic"], each["partition"]), int(each["offset"]))
        for each in plan["partitions"]
    ]
    names = [each for each, _ in pairs]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        listed = ",".join(f"{each.topic}-{each.partition}" for each in twice)
        raise ValueError(f"Offset json file contains duplicate topic partitions: {listed}")
    return dict(pairs)


main = entry(run)
