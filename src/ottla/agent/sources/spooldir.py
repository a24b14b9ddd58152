"""The `spooldir` source: whole files that are put into a directory, each event once.

A file is renamed, marked or deleted when all that was read from it is delivered (Flume does that
when its channel has it, and loses what a memory channel held). Until then a restart finds it, and
continues at the position that the sinks have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from ..config.options import Options
from ..config.patterns import python_pattern
from ..context import Context
from ..events import FORGET, EventBatch, Position
from ..files.compressed import CompressedContent
from ..files.decoders import decoder_maker
from ..files.facts import FileFacts
from ..files.lines import Decoder, LineDecoder
from ..files.listing import Found
from ..files.opening import OpenContent, open_content
from ..files.spool import ConsumeOrder, SpoolError, SpoolRules
from ..files.tail import BatchForm, ContentChanged, PlainContent, Tail
from ..files.watching import RELIST_S, Watcher, watcher_for
from ..matching.bounded import Bounded
from ..parts import Output

logger = logging.getLogger(__name__)
BATCH_SIZE = 100  # Flume's default
UNDELIVERED_S = 0.05  # how often files that are read are looked at until they are delivered
UNDELIVERED_MAX = 1000  # such files at a time


@dataclass(slots=True)
class SpoolOptions:
    rules: SpoolRules
    new_decoder: Callable[[int], Decoder] = LineDecoder
    decompress: bool = True  # by the suffix of the name
    batch_size: int = BATCH_SIZE
    file_header: str | None = None
    basename_header: str | None = None
    recode: Callable[[bytes], bytes] | None = None  # to another character set
    new_watcher: Callable[[Sequence[str]], Watcher] = watcher_for


@dataclass(slots=True)
class ReadFile:
    """A file that is read to its end."""

    found: Found
    stream: str | None  # None: it had nothing
    offset: int


class SpoolDirectorySource:
    replays = True

    def __init__(self, name: str, options: SpoolOptions) -> None:
        self.name = name
        self.options = options
        self.long_lines = 0
        self.failure: str | None = None
        self._known: dict[tuple[int, int], Position] = {}
        self._read: dict[tuple[int, int], ReadFile] = {}  # not delivered, or not marked

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        try:
            self.options.rules.check()
            await self._run(output, positions)
        except (SpoolError, UnicodeError, OSError) as error:
            # Flume's source ends too, and the others go on.
            self.failure = str(error)
            logger.error(
                "Source %s ends: %s. Mend the directory and restart or reload the agent",
                self.name,
                error,
            )

    async def _run(self, output: Output, positions: Mapping[str, Position]) -> None:
        rules = self.options.rules
        for position in positions.values():
            facts = FileFacts.from_json(position.facts)
            self._known[facts.device, facts.inode] = position
        with closing(self.options.new_watcher([rules.directory])) as watcher:
            files, directories = await asyncio.to_thread(rules.find)
            watcher.watch(directories)
            await self._forget_others(files, output)
            while True:
                for found in files:
                    if found.key not in self._read:
                        await self._read_file(found, output)
                        await self._retire(output)
                    while len(self._read) >= UNDELIVERED_MAX:
                        await asyncio.sleep(UNDELIVERED_S)
                        await self._retire(output)
                changes = await watcher.wait(UNDELIVERED_S if self._read else RELIST_S)
                await self._retire(output)
                files = []
                if changes.listing:
                    files, directories = await asyncio.to_thread(rules.find)
                    watcher.watch(directories)

    async def _forget_others(self, files: Sequence[Found], output: Output) -> None:
        """Positions of files that were marked before the agent ended."""
        there = {found.key for found in files}
        for key in self._known.keys() - there:
            await output.put(EventBatch([], position=Position(self._known.pop(key).stream, FORGET)))

    async def _read_file(self, found: Found, output: Output) -> None:
        try:
            content = (
                open_content(found.path) if self.options.decompress else PlainContent(found.path)
            )
        except OSError as error:
            logger.warning("Source %s: %s cannot be read: %s", self.name, found.path, error)
            return
        with closing(content):
            tail = await asyncio.to_thread(self._tail_of, found, content)
            form = self._form(found)
            while True:
                read_to = tail.decoder.read_to
                try:
                    batches = tail.read(form)
                except ContentChanged:
                    raise SpoolError(
                        f"File has been modified since being read: {found.path}"
                    ) from None
                if ended := tail.decoder.read_to == read_to:
                    if isinstance(content, CompressedContent) and not content.complete:
                        raise SpoolError(
                            f"{found.path} is cut short or damaged"
                            f"{content.problem and f' ({content.problem})'}: {read_to} bytes of it "
                            "could be read"
                        )
                    batches = tail.finish(form)
                for batch in batches:
                    if self.options.recode is not None:
                        batch.bodies = list(map(self.options.recode, batch.bodies))
                    await output.put(batch)
                if ended:
                    break
                await asyncio.sleep(0)  # also where a long line gives no event
        if tail.decoder.long_lines:
            self.long_lines += tail.decoder.long_lines
            logger.warning(
                "Source %s: %d lines over the limit in %s",
                self.name,
                tail.decoder.long_lines,
                found.path,
            )
        stream = tail.stream if tail.position > 0 else None
        self._read[found.key] = ReadFile(found, stream, tail.position)

    def _tail_of(self, found: Found, content: OpenContent) -> Tail:
        """Where the sinks were, if it is the file that they know."""
        facts = FileFacts(found.path, found.device, found.inode)
        known = self._known.pop(found.key, None)
        if known is not None:
            held = FileFacts.from_json({"offset": known.offset, **known.facts})
            if held.hold(content):
                decoder = self.options.new_decoder(known.offset)
                return Tail(known.stream, facts, decoder, content)
        stream = f"{self.name}/{uuid.uuid4().hex[:16]}"
        return Tail(stream, facts, self.options.new_decoder(0), content)

    def _form(self, found: Found) -> BatchForm:
        headers = {}
        if self.options.file_header:
            headers[self.options.file_header] = found.path
        if self.options.basename_header:
            headers[self.options.basename_header] = os.path.basename(found.path)
        return BatchForm(headers, self.options.batch_size)

    async def _retire(self, output: Output) -> None:
        """Marks those files that are delivered; their positions are not needed any more."""
        for key, read in list(self._read.items()):
            if read.stream is not None and not output.is_delivered(read.stream, read.offset):
                continue
            self.options.rules.retire(read.found)
            del self._read[key]
            if read.stream is not None:
                await output.put(EventBatch([], position=Position(read.stream, FORGET)))


def from_options(name: str, options: Options, context: Context) -> SpoolDirectorySource:
    directory = os.path.abspath(os.path.expanduser(options.text("spoolDir")))
    tracker = os.path.join(directory, os.path.expanduser(options.text("trackerDir")))

    def names(option: str) -> Bounded[str]:
        return Bounded(python_pattern(options.text(option)), f"{option} of {name}", whole=True)

    rules = SpoolRules(
        directory,
        options.text("fileSuffix"),
        options.text("deletePolicy") == "immediate",
        tracker if options.text("trackingPolicy") == "tracker_dir" else None,
        names("includePattern"),
        names("ignorePattern"),
        options.flag("recursiveDirectorySearch"),
        ConsumeOrder(options.text("consumeOrder")),
    )
    return SpoolDirectorySource(
        name,
        SpoolOptions(
            rules,
            new_decoder=decoder_maker(options),
            decompress=options.text("deserializer") != "blob",
            batch_size=options.number("batchSize"),
            file_header=options.text("fileHeaderKey") if options.flag("fileHeader") else None,
            basename_header=(
                options.text("basenameHeaderKey") if options.flag("basenameHeader") else None
            ),
            recode=recoder(options),
        ),
    )


def recoder(options: Options) -> Callable[[bytes], bytes] | None:
    """From the character set of the files to that of the events. Bytes go through as they are if
    both are the same, unless the file says what becomes of those that are not in it."""
    given = options.text("inputCharset")
    wanted = options.text("deserializer.outputCharset")
    if given == wanted and not options.given("decodeErrorPolicy"):
        return None
    policy = options.text("decodeErrorPolicy").lower()
    errors = {"fail": "strict", "replace": "replace", "ignore": "ignore"}[policy]
    return lambda body: body.decode(given, errors).encode(wanted, "replace")
