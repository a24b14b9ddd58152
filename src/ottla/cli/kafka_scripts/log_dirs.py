"""kafka-log-dirs.sh: what lies in the data directories of brokers, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from .options import BOOTSTRAP, COMMAND_CONFIG, Option, Parser
from .running import admin_of, entry

PARSER = Parser(
    "kafka-log-dirs.sh",
    "show the sizes of partitions in the brokers' data directories",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("describe", about="show them", required=True),
        Option("topic-list", "T1,T2", "only these topics", default=""),
        Option("broker-list", "1,2", "only these brokers"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    topics = {name for name in given.value("topic-list").split(",") if name}
    with admin_of(given) as admin:
        existing = sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])
        text = given.value("broker-list")
        brokers = [int(each) for each in text.split(",") if each] if text else existing
        missing = [each for each in brokers if each not in existing]
        if missing:
            print(
                "ERROR: The given brokers do not exist from --broker-list: "
                f"{','.join(map(str, missing))}. Current existent brokers: "
                f"{','.join(map(str, existing))}",
                file=sys.stderr,
            )
            return 1
        print("Querying brokers for log directories information")
        found = admin.describe_log_dirs(brokers=brokers)
        print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
        print(json.dumps(shape(found, topics), separators=(",", ":")))
    return 0


def shape(found: list[dict[str, Any]], topics: set[str]) -> dict[str, Any]:
    from ottla.client.errors import error_class

    return {
        "brokers": [
            {
                "broker": broker["broker"],
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": f"{topic['name']}-{each['partition_index']}",
                                "size": each["partition_size"],
                                "offsetLag": each["offset_lag"],
                                "isFuture": each["is_future_key"],
                            }
                            for topic in directory["topics"]
                            if not topics or topic["name"] in topics
                            for each in topic["partitions"]
                        ],
                        "error": error_class(directory["error_code"]).__name__
                        if directory["error_code"]
                        else None,
                        "logDir": directory["log_dir"],
                    }
                    for directory in broker["log_dirs"]
                ],
            }
            for broker in found
        ],
        "version": 1,
    }


main = entry(run)
