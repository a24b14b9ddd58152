"""kafka-dump-log.sh: what is in the files of a partition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ottla.cli.failure import Failure

from .options import Given, Option, Parser
from .running import entry

DECODERS = {
    "org.apache.kafka.tools.api.StringDecoder": "text",
    "kafka.serializer.StringDecoder": "text",
    "org.apache.kafka.tools.api.DefaultDecoder": "text",
    "org.apache.kafka.tools.api.IntegerDecoder": "int",
    "org.apache.kafka.tools.api.LongDecoder": "long",
}
NOT_OURS = "such records are not written here"

PARSER = Parser(
    "kafka-dump-log.sh",
    "show the contents of log, index, snapshot and transaction index files",
    [
        Option("files", "FILE,FILE", "the files", required=True),
        Option("print-data-log", about="show keys and values"),
        Option("deep-iteration", about="show every record"),
        Option("verify-index-only", about="check indexes without showing them"),
        Option("index-sanity-check", about="check indexes as a broker does at its start"),
        Option("skip-record-metadata", about="show keys and values alone"),
        Option("max-bytes", "BYTES", "look at so much of each log", kind=int, default=2**31 - 1),
        Option("max-message-size", "BYTES", "taken and not needed", kind=int, default=5242880),
        Option("key-decoder-class", "[CLASS]", "one of Kafka's decoders", default=""),
        Option("value-decoder-class", "[CLASS]", "one of Kafka's decoders", default=""),
        Option("offsets-decoder", about="records of __consumer_offsets"),
        Option("transaction-log-decoder", about="records of __transaction_state"),
        Option("share-group-state-decoder", about="records of __share_group_state"),
        Option("cluster-metadata-decoder", skipped=NOT_OURS),
        Option("remote-log-metadata-decoder", skipped=NOT_OURS),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.cli.log import Choices, dump_file, new_findings, new_options

    given = PARSER.parse(arguments)
    options = new_options(
        deep=given.has("deep-iteration") or shows_data(given),
        show=show_of(given) if shows_data(given) else None,
        skip_metadata=given.has("skip-record-metadata"),
        bytes_max=given.value("max-bytes"),
    )
    choices = Choices(
        options,
        print_entries=not given.has("verify-index-only"),
        sanity_only=given.has("index-sanity-check"),
    )
    findings = new_findings()
    for path in given.value("files").split(","):
        print(f"Dumping {path}")
        for line in dump_file(path.strip(), choices, findings):
            print(line)
    for line in findings.lines():
        print(line, file=sys.stderr)
    return 0


def shows_data(given: Given) -> bool:
    return any(
        given.has(name)
        for name in (
            "print-data-log", "offsets-decoder", "transaction-log-decoder",
            "share-group-state-decoder", "key-decoder-class", "value-decoder-class",
        )
    )  # fmt: skip


def show_of(given: Given) -> Any:
    from ottla.cli.log import show_offsets, show_share_state, show_transactions, text

    if given.has("offsets-decoder"):
        return show_offsets
    if given.has("transaction-log-decoder"):
        return show_transactions
    if given.has("share-group-state-decoder"):
        return show_share_state
    kinds = [decoder(given.value(name)) for name in ("key-decoder-class", "value-decoder-class")]

    def shown(kind: str, data: Any) -> str | None:
        if data is None or kind == "text":
            return text(data)
        return str(int.from_bytes(data, "big", signed=True))

    return lambda record: (shown(kinds[0], record.key), shown(kinds[1], record.value))


def decoder(name: str) -> str:
    if name and name not in DECODERS:
        raise Failure(
            f"there is no decoder {name} here; classes of Java do not run",
            f"one of {', '.join(DECODERS)}",
        )
    return DECODERS.get(name, "text")


main = entry(run)
