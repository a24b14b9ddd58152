"""`ottla consume`: records of a topic, from where you like, as you like.

Without a group it takes the partitions itself and leaves no trace. It ends at the end the topic had
when it began, unless --follow is given.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ottla.cli.common import cluster_options, complete_topics, pairs
from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, file_options
from ottla.cli.failure import Failure
from ottla.cli.record_format import DECODERS, as_object, compiled
from ottla.cli.stopping import stopped_by_sigterm
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.structs import ConsumerRecord

POLL_MS = 200
DECODER = click.Choice(sorted(DECODERS))


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--follow/--no-follow", "-F", default=False, help="Go on as records come.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="beginning, end, an offset, or a time such as 2026-11-15T16:00:00.  "
    "[default: beginning, or the end with --follow]",
)
@click.option("--last", type=int, metavar="N", help="The last N records of each partition.")
@click.option("-n", "--count", type=int, help="Stop after so many records.")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only this one.")
@click.option("-g", "--group", help="Read as a member of this group, and commit.")
@click.option(
    "-f", "--format", "pattern", default=None, help="%t %p %o %k %v %h %T; \\n at the end."
)
@click.option("--key-decoder", type=DECODER, default="text", help="How keys are read.")
@click.option("--value-decoder", type=DECODER, default="text", help="How values are read.")
@click.option("--null", default="", metavar="TEXT", help="How null is shown.")
@click.option("--committed", is_flag=True, help="Leave out what was aborted or is still open.")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the consumer.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record.")
@cluster_options
def consume(
    topic: str, follow: bool, start: str | None, last: int | None, count: int | None,
    partitions: tuple[int, ...], group: str | None, pattern: str | None, key_decoder: str,
    value_decoder: str, null: str, committed: bool, options: tuple[str, ...], as_json: bool,
    bootstrap: str, command_config: str | None,
) -> int:  # fmt: skip
    """Print the records of TOPIC.

    \b
    ottla consume orders                      all there are
    ottla consume orders --follow             what comes from now on
    ottla consume orders --last 10            the last ten of each partition
    ottla consume orders --from 2026-11-15T16:00:00 -f '%p:%o %k=%v\\n'
    """
    show = shower(pattern, key_decoder, value_decoder, null, as_json)
    from ottla.client.consumer import Consumer
    from ottla.client.consumer.options import CONSUMER

    chosen = file_options(CONSUMER, command_config)
    chosen |= pairs(options, "--option")
    chosen.setdefault("bootstrap.timeout.ms", BOOTSTRAP_TIMEOUT_MS)
    chosen |= {"bootstrap.servers": bootstrap, "group.id": group}
    chosen["auto.offset.reset"] = "latest" if start == "end" else "earliest"
    chosen["allow_auto_create_topics"] = False
    if committed:
        chosen["isolation.level"] = "read_committed"
    with failures():
        consumer = Consumer(chosen)
        try:
            ends: dict[TopicPartition, int] | None = None
            if group is not None:
                consumer.subscribe(topics=[topic])
            else:
                ends = take(consumer, topic, partitions, start, last, follow)
            with stopped_by_sigterm():
                read(consumer, show, count, None if follow else ends, follow)
        except (KeyboardInterrupt, BrokenPipeError) as stop:
            if isinstance(stop, BrokenPipeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            consumer.close()
    return 0


def shower(
    pattern: str | None, key: str, value: str, null: str, as_json: bool
) -> Callable[[ConsumerRecord], str]:
    if as_json:
        return lambda record: json.dumps(as_object(record, key, value), ensure_ascii=False) + "\n"
    try:
        return compiled("%v\\n" if pattern is None else pattern, key, value, null)
    except ValueError as problem:
        raise Failure(f"--format: {problem}", "ottla consume --help", exit_code=2) from None


def take(
    consumer: Consumer,
    topic: str,
    numbers: tuple[int, ...],
    start: str | None,
    last: int | None,
    follow: bool,
) -> dict[TopicPartition, int]:
    """Assign the partitions and go to the start; gives where each ends now."""
    known = consumer.partitions_for_topic(topic)
    if not known:
        raise Failure(f"there is no topic {topic!r}", "ottla topics list")
    missing = [each for each in numbers if each not in known]
    if missing:
        raise Failure(f"{topic!r} has no partition {missing[0]}", f"--partition 0 to {max(known)}")
    places = [TopicPartition(topic, each) for each in sorted(numbers or known)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    first = consumer.beginning_offsets(places)
    if last is not None:
        for place in places:
            consumer.seek(place, max(first[place], ends[place] - last))
    elif start is None:
        for place in places:
            consumer.seek(place, ends[place] if follow else first[place])
    else:
        seek(consumer, places, start, first, ends)
    return ends


def seek(
    consumer: Consumer,
    places: list[TopicPartition],
    start: str,
    first: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> None:
    from ottla.cli.offset_resets import milliseconds_of

    found: dict[TopicPartition, int]
    if start in ("beginning", "earliest"):
        found = first
    elif start in ("end", "latest"):
        found = ends
    elif start.isdigit():
        found = dict.fromkeys(places, int(start))
    else:
        try:
            time_ms = milliseconds_of(start)
        except ValueError as problem:
            raise Failure(
                f"--from: {problem}",
                "--from beginning, end, 42 or 2026-11-15T16:00:00",
                exit_code=2,
            ) from None
        times = consumer.offsets_for_times(dict.fromkeys(places, time_ms))
        found = dict(ends)
        found |= {place: there.offset for place, there in times.items() if there is not None}
    for place in places:
        consumer.seek(place, min(max(found[place], first[place]), ends[place]))


def read(
    consumer: Consumer,
    show: Callable[[ConsumerRecord], str],
    count: int | None,
    ends: dict[TopicPartition, int] | None,
    follow: bool,
) -> None:
    """Until so many have come, or every partition is at the end that it had."""
    out = sys.stdout.buffer
    shown, quiet = 0, 0
    while count is None or shown < count:
        if ends is not None and at_end(consumer, ends):
            return
        left = None if count is None else count - shown
        batches = consumer.poll(timeout_ms=POLL_MS, max_records=left)
        for records in batches.values():
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                if ends is not None and record.offset >= ends[place]:
                    continue
                out.write(show(record).encode())
                shown += 1
        out.flush()
        quiet = 0 if batches else quiet + 1
        # A group's member cannot know the end beforehand: silence for a while is the end.
        if ends is None and not follow and quiet * POLL_MS >= 3000 and consumer.assignment():
            return


def at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return all((consumer.position(each) or 0) >= end for each, end in ends.items())
