"""Interceptors: a header with the time on every record, and a count of what became of them.

    python examples/interceptors.py orders --bootstrap-servers localhost:9092 < lines.txt

`TimestampHeader` and `Counting` come with the package; `NoSecrets` shows how to write one. They run
in this order for every record, in the thread that sends; `on_acknowledgement` runs in the client's
own thread, before the callback of the record. What one of them raises is logged and passed over.
"""

from __future__ import annotations

import argparse
import sys

from ottla import Producer
from ottla.client.interceptors import Counting, ProducerInterceptor, ProducerRecord, TimestampHeader


class NoSecrets(ProducerInterceptor):
    """Blots out what comes after `password=`; sees the value before it is serialized."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        text, found, _ = str(record.value).partition("password=")
        return record._replace(value=f"{text}{found}***") if found else record


def main() -> None:
    parser = argparse.ArgumentParser(description="Send lines, with interceptors.")
    parser.add_argument("topic")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    given = parser.parse_args()
    with Producer(
        bootstrap_servers=given.bootstrap_servers,
        value_serializer="str",
        interceptors=[NoSecrets(), TimestampHeader("sent-at"), Counting()],
    ) as producer:
        for line in sys.stdin:
            producer.send(given.topic, line.rstrip("\n"))
    # Closing has flushed, and Counting has printed.


if __name__ == "__main__":
    main()
