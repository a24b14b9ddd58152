"""`ottla produce`: lines of standard input, a file, or words of the command line as records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from ottla.cli.common import cluster_options, complete_topics, pairs
from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, file_options, text_of
from ottla.cli.failure import Failure
from ottla.cli.lines import Header, LineParser, LineProblem

PROGRESS_BYTES = 1024 * 1024  # a bar is worth it from here on


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("values", nargs=-1)
@click.option(
    "-f", "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Lines of a file."
)
@click.option("-k", "--key", help="The same key for every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="A line is key, TEXT, value.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header.")
@click.option("-Z", "--null", "null_marker", metavar="TEXT", help="This text means null.")
@click.option("-p", "--partition", type=int, help="This partition; else by key.")
@click.option("-t", "--timestamp", type=int, metavar="MS", help="The time of the records.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="How batches are compressed.",
)
@click.option("--acks", default="all", show_default=True, help="0, 1 or all.")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the producer.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Say where each record went, one JSON a line."
)
@cluster_options
def produce(
    topic: str, values: tuple[str, ...], path: str | None, key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...], null_marker: str | None, partition: int | None, timestamp: int | None,
    compression: str, acks: str, options: tuple[str, ...], as_json: bool, bootstrap: str,
    command_config: str | None,
) -> int:  # fmt: skip
    """Send records to TOPIC: the VALUES, or else each line of standard input.

    \b
    echo hello | ottla produce greetings
    ottla produce orders -K : <<< "customer-1:three apples"
    ottla produce orders --key customer-1 --header source=shop "three apples"
    """
    from ottla.client.producer import Producer
    from ottla.client.producer.options import PRODUCER

    properties = {"parse.key": "true", "key.separator": key_separator} if key_separator else {}
    if null_marker is not None:
        properties["null.marker"] = null_marker
    common: list[Header] = [
        (name, text.encode()) for name, text in pairs(headers, "--header").items()
    ]
    chosen = file_options(PRODUCER, command_config)
    chosen |= pairs(options, "--option")
    chosen |= {"bootstrap.servers": bootstrap, "compression.type": compression, "acks": acks}
    chosen.setdefault("bootstrap.timeout.ms", BOOTSTRAP_TIMEOUT_MS)
    if compression == "none":
        chosen["compression.type"] = None
    errors: list[Exception] = []
    sent = 0

    def delivered(metadata: Any, error: Exception | None) -> None:
        if error is not None:
            errors.append(error)
        elif as_json:
            click.echo(f'{{"partition": {metadata.partition}, "offset": {metadata.offset}}}')

    parser = LineParser(properties)
    with failures():
        producer: Producer[bytes, bytes] = Producer(chosen)
        try:
            for line in lines(values, path):
                record = parser.parse(line)
                sent += 1
                producer.send(
                    topic,
                    record.value,
                    key.encode() if key is not None else record.key,
                    common,
                    partition,
                    timestamp,
                    on_delivery=delivered,
                )
        except LineProblem as problem:
            raise Failure(str(problem), "ottla produce --help") from None
        finally:
            producer.close()
    if errors:
        raise Failure(f"{len(errors)} of {sent} records were not written: {text_of(errors[0])}")
    if sys.stderr.isatty():
        click.secho(f"{sent} records written", fg="green", err=True)
    return 0


def lines(values: tuple[str, ...], path: str | None) -> Iterator[str]:
    """Words, the lines of a file with a bar on a terminal, or standard input."""
    if values:
        yield from values
    elif path is not None:
        with open(path, encoding="utf-8", errors="replace") as file:
            import os

            size = os.fstat(file.fileno()).st_size
            if size < PROGRESS_BYTES or not sys.stderr.isatty():
                yield from (line.removesuffix("\n") for line in file)
                return
            with click.progressbar(length=size, label=path, file=sys.stderr) as bar:
                for line in file:
                    yield line.removesuffix("\n")
                    bar.update(len(line.encode()))
    else:
        from ottla.cli.kafka_scripts.console_producer import lines_of

        yield from lines_of(sys.stdin)
