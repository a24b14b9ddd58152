"""The `TAILDIR` source: follows files by their patterns, line by line, each line once.

Which file is which is decided by `files/registry.py`; a file keeps its stream when it is renamed,
and its position comes back from the sinks after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ..config.options import Options
from ..config.patterns import python_pattern
from ..context import Context
from ..events import Position
from ..files.facts import Content
from ..files.lines import LINE_BYTES_MAX, LineDecoder, LongLines
from ..files.listing import FileGroup, Found, list_group, list_names
from ..files.registry import Known, Registry
from ..files.tail import BatchForm, ContentChanged, PlainContent, Tail
from ..parts import Output

logger = logging.getLogger(__name__)
BATCH_SIZE = 100  # Flume's default
BYTE_OFFSET_HEADER = "byteoffset"  # Flume's name
POLL_S = 0.25


@dataclass(slots=True)
class TaildirOptions:
    groups: Sequence[FileGroup]
    batch_size: int = BATCH_SIZE
    file_header: str | None = None  # the name of the header with the path, if events get it
    byte_offset_header: str | None = None
    line_bytes_max: int = LINE_BYTES_MAX
    long_lines: LongLines = LongLines.CUT


@dataclass(slots=True)
class OpenFile:
    tail: Tail
    content: PlainContent
    form: BatchForm


class TaildirSource:
    replays = True

    def __init__(self, name: str, options: TaildirOptions) -> None:
        self.name = name
        self.options = options
        self._groups = {group.name: group for group in options.groups}
        self._registry = Registry({}, self._new_stream)
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._to_read: dict[str, Known] = {}

    def _new_stream(self) -> str:
        return f"{self.name}/{uuid.uuid4().hex[:16]}"

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        self._registry = Registry(positions, self._new_stream)
        try:
            while True:
                self._list()
                while self._to_read:
                    await self._read_round(output)
                await asyncio.sleep(POLL_S)
        finally:
            for opened in self._open.values():
                opened.content.close()
            self._open.clear()

    def _list(self) -> None:
        listing: list[Found] = []
        for group in self.options.groups:
            listing += list_group(group, list_names(group.directory))
        # The oldest first, as in Flume.
        listing.sort(key=lambda found: found.modified_ns)
        with ExitStack() as opened:

            def content_of(found: Found) -> Content | None:
                try:
                    return opened.enter_context(closing(PlainContent(found.path)))
                except OSError as error:
                    logger.warning("Source %s: %s cannot be read: %s", self.name, found.path, error)
                    return None

            for known in self._registry.update(listing, content_of):
                self._to_read[known.stream] = known

    async def _read_round(self, output: Output) -> None:
        """A block of each file that has something, so that a large one does not hold up others."""
        for stream, known in list(self._to_read.items()):
            opened = self._open.get(stream) or self._open_file(known)
            if opened is None:
                del self._to_read[stream]
                continue
            tail = opened.tail
            read_to = tail.decoder.read_to
            try:
                batches = tail.read(opened.form)
            except ContentChanged:
                self._close(stream)
                del self._to_read[stream]
                continue
            if tail.decoder.read_to == read_to:
                del self._to_read[stream]
            for batch in batches:
                await output.put(batch)
            known.offset = tail.position
            known.facts = tail.facts

    def _open_file(self, known: Known) -> OpenFile | None:
        try:
            content = PlainContent(known.facts.path)
        except OSError as error:
            logger.warning("Source %s: %s cannot be read: %s", self.name, known.facts.path, error)
            return None
        seen = content.stat()
        if (seen.st_dev, seen.st_ino) != known.key:
            # Renamed since it was listed.
            content.close()
            return None
        options = self.options
        decoder = LineDecoder(known.offset, options.line_bytes_max, options.long_lines)
        tail = Tail(known.stream, known.facts, decoder, content)
        headers = dict(self._groups[known.group].headers) if known.group else {}
        if options.file_header:
            headers[options.file_header] = known.facts.path
        opened = OpenFile(
            tail, content, BatchForm(headers, options.batch_size, options.byte_offset_header)
        )
        self._open[known.stream] = opened
        return opened

    def _close(self, stream: str) -> None:
        opened = self._open.pop(stream, None)
        if opened is not None:
            opened.content.close()


def from_options(name: str, options: Options, context: Context) -> TaildirSource:
    paths, headers = options.family("filegroups."), options.family("headers.")
    groups = []
    for group in options.names("filegroups"):
        directory, pattern = os.path.split(os.path.expanduser(paths[group]))
        own = {
            key[len(group) + 1 :]: value
            for key, value in headers.items()
            if key.startswith(f"{group}.")
        }
        groups.append(FileGroup(group, directory, re.compile(python_pattern(pattern)), own))
    return TaildirSource(
        name,
        TaildirOptions(
            groups,
            batch_size=options.number("batchSize"),
            file_header=options.text("fileHeaderKey") if options.flag("fileHeader") else None,
            byte_offset_header=BYTE_OFFSET_HEADER if options.flag("byteOffsetHeader") else None,
            line_bytes_max=options.number("deserializer.maxLineLength"),
            long_lines=LongLines(options.text("deserializer.longLines")),
        ),
    )
