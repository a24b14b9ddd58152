"""`ottla log dump DIR|FILE…`: what lies in the files of a data directory, without a broker.

A partition's folder gives all its segments in order, a data directory also its checkpoints. Files
are mapped, never read whole. `dump_file` is what kafka-dump-log.sh uses as well.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.failure import Failure, lower

if TYPE_CHECKING:
    from ottla.client.codec.coordinator_records import Decoded
    from ottla.log.dumping import Findings, LogOptions, Show
    from ottla.wire.malformed import Buffer
    from ottla.wire.records import Record

    Decode = Callable[[Buffer | None, Buffer | None], Decoded]

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
CHECKPOINTS = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "leader-epoch-checkpoint",
    "partition.metadata",
    ".kafka_cleanshutdown",
)


class Choices(NamedTuple):
    """What to do with each kind of file."""

    log: LogOptions
    print_entries: bool = True
    sanity_only: bool = False


@click.group()
def log() -> None:
    """Look into the files of a data directory."""


@log.command()
@click.argument("paths", nargs=-1, required=True, metavar="DIR|FILE...")
@click.option("--records/--batches", default=True, help="Every record, or the batches alone.")
@click.option(
    "--decoder",
    type=click.Choice(["auto", "text", "hex", "offsets", "transactions", "share-state", "none"]),
    default="auto",
    show_default=True,
    help="How keys and values are shown; auto goes by the folder's name.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record.")
def dump(paths: tuple[str, ...], records: bool, decoder: str, as_json: bool) -> int:
    """Show logs, indexes, snapshots and checkpoints as text.

    PATHS are data directories, folders of partitions, or single files. What coordinators keep in
    the internal topics is shown decoded. The server may be running or not: nothing is written.
    Exit code 1 when something is damaged.
    """
    from ottla.log.dumping import Findings, LogOptions

    findings = Findings()
    found = list(files_under(paths))
    if not found:
        raise Failure(
            f"nothing to show in {', '.join(paths)}", "a data directory, or a partition's"
        )
    for path in found:
        show = shower(decoder, path)
        if as_json:
            print_json(path, show)
            continue
        options = LogOptions(deep=records, show=show if records else None)
        click.echo(f"# {path}")
        for line in dump_file(path, Choices(options), findings):
            click.echo(line)
    for line in findings.lines():
        click.echo(line, err=True)
    return 1 if findings else 0


def files_under(paths: tuple[str, ...]) -> Iterator[str]:
    """The files to look at, folders in order."""
    for path in paths:
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise Failure(f"there is no {path}", "ottla log dump DIR, with a data directory")
            name = os.path.basename(path)
            if name not in CHECKPOINTS and not name.endswith(SUFFIXES):
                ends = " ".join(SUFFIXES)
                raise Failure(f"{path} is no file of a log", f"a file that ends in {ends}")
            yield path
            continue
        names = sorted(os.listdir(path))
        for name in names:
            whole = os.path.join(path, name)
            if name in CHECKPOINTS or (name.endswith(SUFFIXES) and os.path.isfile(whole)):
                yield whole
        for name in names:
            whole = os.path.join(path, name)
            if os.path.isdir(whole) and name.rpartition("-")[2].isdigit():
                yield from files_under((whole,))


def dump_file(path: str, choices: Choices, findings: Findings) -> Iterator[str]:
    """The lines of one file, by its name."""
    from ottla.log import dumping

    name = os.path.basename(path)
    stem, _, suffix = name.partition(".")
    absolute = os.path.abspath(path)
    base_offset = int(stem) if stem.isdigit() else 0
    if suffix == "log":
        yield f"Log starting offset: {base_offset}"
        with mapped(path) as data:
            yield from dumping.dump_log(data, absolute, name, choices.log, findings)
    elif suffix in ("index", "timeindex"):
        yield from dump_index_file(path, choices, findings, base_offset)
    elif suffix == "snapshot":
        with mapped(path) as data:
            try:
                yield from dumping.dump_snapshot(bytes(data))
            except ValueError as problem:
                print(f"Snapshot {path} is not sound: {problem}", file=sys.stderr)
    elif suffix == "txnindex":
        with mapped(path) as data:
            yield from dumping.dump_transaction_index(data)
    elif name in CHECKPOINTS:
        with mapped(path) as data:
            yield from bytes(data).decode("utf-8", "replace").splitlines()
    else:
        print(f"Ignoring unknown file {path}", file=sys.stderr)


def dump_index_file(
    path: str, choices: Choices, findings: Findings, base_offset: int
) -> Iterator[str]:
    from ottla.log import dumping

    entry = dumping.OFFSET_ENTRY if path.endswith(".index") else dumping.TIME_ENTRY
    absolute = os.path.abspath(path)
    beside = os.path.join(
        os.path.dirname(absolute), os.path.basename(path).partition(".")[0] + ".log"
    )
    with mapped(path) as data, mapped(beside) as log_data:
        if not len(data) and path.endswith(".index"):
            yield f"{path} is empty."
            return
        if choices.sanity_only:
            if len(data) % entry.size:
                raise Failure(
                    f"{path}: {len(data)} bytes are not a whole number of entries",
                    "start the server on this directory: it makes the index anew",
                )
            yield f"{path} passed sanity check."
            return
        show = dumping.dump_index if path.endswith(".index") else dumping.dump_time_index
        yield from show(
            data, log_data, absolute, base_offset, findings, print_entries=choices.print_entries
        )


@contextmanager
def mapped(path: str) -> Iterator[Buffer]:
    """A file's bytes without reading them; an empty file cannot be mapped."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                yield memoryview(b"")
                return
            area = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise Failure(
            f"cannot read {path}: {lower(error.strerror)}", "a file that is there"
        ) from None
    view = memoryview(area)
    try:
        yield view
    finally:
        try:
            view.release()
            area.close()
        except BufferError:
            pass  # a slice is still in somebody's hands; it goes with them


def new_findings() -> Findings:
    from ottla.log.dumping import Findings

    return Findings()


def new_options(**options: Any) -> LogOptions:
    from ottla.log.dumping import LogOptions

    return LogOptions(**options)


# Keys and values


def shower(decoder: str, path: str) -> Show | None:
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if decoder == "auto":
        decoder = "text"
        if folder.startswith("__consumer_offsets-"):
            decoder = "offsets"
        elif folder.startswith("__transaction_state-"):
            decoder = "transactions"
        elif folder.startswith("__share_group_state-"):
            decoder = "share-state"
    return {
        "text": show_text,
        "hex": show_hex,
        "offsets": show_offsets,
        "transactions": show_transactions,
        "share-state": show_share_state,
    }.get(decoder)


def show_text(record: Record) -> tuple[str | None, str | None]:
    return text(record.key), text(record.value)


def text(data: Buffer | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "replace")


def show_hex(record: Record) -> tuple[str | None, str | None]:
    key, value = record.key, record.value
    return None if key is None else bytes(key).hex(), None if value is None else bytes(value).hex()


def show_offsets(record: Record) -> tuple[str | None, str | None]:
    """A record of `__consumer_offsets`."""
    from ottla.client.codec.coordinator_records import (
        Unreadable,
        decode_group_record,
        with_opened_members,
    )
    from ottla.wire.coordinator_records import GroupMetadataValue

    try:
        found = decode_group_record(record.key, record.value)
    except Unreadable as problem:
        if problem.kind is not None:
            return f"Unknown record type {problem.kind} at offset {record.offset}, skipping.", None
        return f"Error at offset {record.offset}, skipping. {problem}", None
    value = found.value
    if isinstance(found.value_message, GroupMetadataValue):
        value = with_opened_members(found.value_message, found.version)
    key = compact({"type": str(found.kind), "data": found.key})
    if value is None:
        return key, "<DELETE>"
    return key, compact({"version": str(found.version), "data": value})


def show_transactions(record: Record) -> tuple[str | None, str | None]:
    """A record of `__transaction_state`."""
    from ottla.client.codec.coordinator_records import decode_transaction_record

    return show_decoded(record, decode_transaction_record)


def show_share_state(record: Record) -> tuple[str | None, str | None]:
    """A record of `__share_group_state`."""
    from ottla.client.codec.coordinator_records import decode_share_state_record

    return show_decoded(record, decode_share_state_record)


def show_decoded(record: Record, decode: Decode) -> tuple[str | None, str | None]:
    from ottla.client.codec.coordinator_records import Unreadable

    try:
        found = decode(record.key, record.value)
    except Unreadable as problem:
        return f"Error at offset {record.offset}, skipping. {problem}", None
    key = compact({"type": str(found.kind), "data": found.key})
    if found.value is None:
        return key, "<DELETE>"
    return key, compact({"version": str(found.version), "data": found.value})


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def print_json(path: str, show: Show | None) -> None:
    """Records alone, for programs."""
    from ottla.wire.records import batch_bounds, read_header, read_records

    if not path.endswith(".log"):
        return
    with mapped(path) as data:
        for start, end in batch_bounds(data):
            header = read_header(data, start)
            for record in read_records(bytes(data[start:end]), check_crc=False):
                key, value = (None, None) if show is None or header.is_control else show(record)
                row = {
                    "file": path,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": key,
                    "value": value,
                    "headers": {name: text(each) for name, each in record.headers},
                    "producer_id": header.producer_id,
                    "transactional": header.is_transactional,
                    "control": header.is_control,
                }
                click.echo(json.dumps(row, ensure_ascii=False))
