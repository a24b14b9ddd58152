"""The `TAILDIR` source: follows files by their patterns, each event once.

Which file is which is decided by `files/registry.py`: a file keeps its stream when it is renamed,
rotated or compressed, and its position comes back from the sinks after a restart. Flume's own
position file counts as long as no sink has a position.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ..config.options import Options
from ..config.patterns import python_pattern
from ..context import Context
from ..events import FORGET, EventBatch, Position
from ..files.compressed import CompressedContent, is_compressed
from ..files.decoders import decoder_maker
from ..files.facts import Content, FileFacts
from ..files.flume_positions import read_position_file, take_over
from ..files.forgetting import stale
from ..files.lines import Decoder, LineDecoder
from ..files.listing import FileGroup, Found, Wanted, list_files
from ..files.opening import (
    FileProbe,
    OpenContent,
    files_max,
    open_if_same,
    say_unreadable,
)
from ..files.registry import SETTLE_S, Known, Outcome, Registry
from ..files.tail import BatchForm, ContentChanged, Tail
from ..files.watching import RELIST_S, Changes, PollingWatcher, Watcher, watcher_for
from ..parts import FileStatus, Output

logger = logging.getLogger(__name__)
BATCH_SIZE = 100  # Flume's default
IDLE_TIMEOUT_MS = 120_000  # Flume's default
OPEN_FILES_MAX = 400  # of 1,024 that a process may open on many machines
CHECK_S = 5.0  # how often open files are looked at
LOOKS_MAX = 10  # at the directories in one listing; files may change meanwhile
FORGET_S = 3600.0  # how often streams are looked for whose files are long gone
# Listing takes at most one part in so many of a core, and half of the time.
LIST_SHARE = 20
LIST_SHARE_POLLING = 150
BYTE_OFFSET_HEADER = "byteoffset"


@dataclass(slots=True)
class TaildirOptions:
    groups: Sequence[FileGroup]
    new_decoder: Callable[[int], Decoder] = LineDecoder  # that continues at an offset
    batch_size: int = BATCH_SIZE
    batches_max: int | None = None  # of one file at a time, as maxBatchCount
    skip_to_end: bool = False
    idle_timeout_ms: int = IDLE_TIMEOUT_MS
    file_header: str | None = None  # the name of the header with the path, if events get it
    byte_offset_header: bool = False
    position_file: str | None = None  # Flume's
    new_watcher: Callable[[Sequence[str]], Watcher] = watcher_for
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class OpenFile:
    known: Known
    tail: Tail
    content: OpenContent
    form: BatchForm
    read_at_s: float


@dataclass(slots=True)
class FileCounters:
    long_lines: int = 0  # cut, dropped or split
    copies: int = 0  # files that were not read, because they are copies


@dataclass(slots=True)
class Pending:
    """What is to be done next."""

    listing: bool = True
    list_after_s: float = 0.0
    read: dict[str, Known] = field(default_factory=dict)


class TaildirSource:
    replays = True

    def __init__(self, name: str, options: TaildirOptions) -> None:
        self.name = name
        self.options = options
        self.counters = FileCounters()
        self._groups = {group.name: group for group in options.groups}
        self._registry = Registry({}, self._new_stream)
        self._open: dict[str, OpenFile] = {}
        self._open_max = files_max(OPEN_FILES_MAX)
        self.open_most = 0  # files at a time, so far
        self._pending = Pending()
        self._flush_at_s: dict[str, float] = {}
        self._clock = options.clock
        self._checked_s = 0.0
        self._looked_s = 0.0  # CPU that the last listing took
        self._forgot_s = 0.0
        self._began_s, self._began_at_s = self._clock(), time.time()
        self._polls = False
        self._by_path: dict[str, Known] = {}
        self._link_directories: set[str] = set()  # where links lead, to be watched as well

    def _new_stream(self) -> str:
        return f"{self.name}/{uuid.uuid4().hex[:16]}"

    def files(self) -> list[FileStatus]:
        """The files that are there, for the monitoring."""
        return [
            FileStatus(
                known.facts.path,
                known.stream,
                known.offset,
                known.seen.size,
                is_compressed(known.facts.path),
            )
            for known in list(self._registry.streams.values())
            if known.seen is not None
        ]

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        directories = [group.directory for group in self.options.groups]
        with closing(self.options.new_watcher(directories)) as watcher:
            self._polls = isinstance(watcher, PollingWatcher)
            try:
                await self._start(output, positions)
                while True:
                    await self._step(output, watcher)
            finally:
                for stream in list(self._open):
                    self._close(stream)

    async def _start(self, output: Output, positions: Mapping[str, Position]) -> None:
        known = {stream: each for stream, each in positions.items() if self._follows(each)}
        if not positions and self.options.position_file:
            known = await asyncio.to_thread(self._flume_positions, self.options.position_file)
            for position in known.values():
                # So that it is known from now on, also if nothing is written before a restart.
                await output.put(EventBatch([], position=position))
        self._registry = Registry(known, self._new_stream)
        await self._list(output, at_end=self.options.skip_to_end)
        await self._forget_stale(output)

    def _follows(self, position: Position) -> bool:
        """Whether a filegroup has the file, or had it before it was renamed. A description that
        no longer names it means that it is not to be read."""
        facts = FileFacts.from_json(position.facts)
        return facts.outside or any(group.has(facts.path) for group in self.options.groups)

    async def _forget_stale(self, output: Output) -> None:
        """Positions of files that are long gone; there would be one more for each rotation."""
        self._forgot_s = self._clock()
        # The clock of the machine may be set, ahead as well.
        now_s = min(time.time(), self._began_at_s + self._forgot_s - self._began_s)
        for known in stale(self._registry.streams.values(), now_s, self._forgot_s):
            self._registry.forget(known)
            await output.put(EventBatch([], position=Position(known.stream, FORGET)))

    def _flume_positions(self, path: str) -> dict[str, Position]:
        held = read_position_file(path)
        if not held:
            return {}
        wanted = Wanted({position.inode for position in held})
        probe = FileProbe(lambda known: None)

        def content_of(found: Found) -> Content | None:
            probe.trim()
            return probe.content(found)

        with closing(probe):
            taken = take_over(
                held, list_files(self.options.groups, wanted), content_of, self._new_stream
            )
        logger.info("Source %s: %d positions of Flume's %s", self.name, len(taken), path)
        return taken

    async def _step(self, output: Output, watcher: Watcher) -> None:
        """Lists if that is due, reads a block of each file that has something, then waits."""
        now_s = self._clock()
        pending = self._pending
        if pending.listing and now_s >= pending.list_after_s:
            await self._list(output)
        if self._link_directories:
            watcher.watch(self._link_directories)
            self._link_directories = set()
        await self._read_round(output)
        timeout_s = CHECK_S if self._open else RELIST_S
        if pending.read:
            timeout_s = 0.0
            await asyncio.sleep(0)
        else:
            due_s = min(self._flush_at_s.values(), default=self._clock() + timeout_s)
            if pending.listing:
                due_s = min(due_s, pending.list_after_s)
            timeout_s = max(0.001, min(timeout_s, due_s - self._clock()))
        changes = await watcher.wait(timeout_s)
        await self._flush(output)
        if self._clock() - self._checked_s >= CHECK_S:
            self._checked_s = self._clock()
            await self._close_idle(output)
        if self._clock() - self._forgot_s >= FORGET_S:
            await self._forget_stale(output)
        self._note(changes)

    def _note(self, changes: Changes) -> None:
        pending = self._pending
        pending.listing = pending.listing or changes.listing
        for path in changes.written:
            known = self._by_path.get(path)
            if known is not None:
                pending.read[known.stream] = known
            else:
                pending.listing = True
        if changes.listing:
            # Those that no listing shows any more, but that may still be written.
            for stream, opened in self._open.items():
                if opened.known.seen is None:
                    pending.read[stream] = opened.known

    async def _list(self, output: Output, at_end: bool = False) -> None:
        began_s, self._looked_s = self._clock(), 0.0
        outcome = await asyncio.to_thread(self._look, at_end)
        # What is missed is looked for under other names, once more for each that is newly missed.
        wanted_before: object = None
        for _ in range(LOOKS_MAX):
            wanted = self._registry.wanted()
            if wanted == wanted_before or not any(wanted):
                break
            wanted_before = wanted
            more = await asyncio.to_thread(self._look, at_end)
            outcome.read += more.read
            outcome.reopen += more.reopen
            outcome.begun += more.begun
            outcome.copies += more.copies
            outcome.waits = more.waits
        else:
            outcome.waits = True
        now_s = self._clock()
        pending = self._pending
        pending.listing = outcome.waits
        share = LIST_SHARE_POLLING if self._polls else LIST_SHARE
        pending.list_after_s = now_s + max(
            self._looked_s * share, now_s - began_s, SETTLE_S / 2 if outcome.waits else 0
        )
        await self._apply(outcome, output)

    def _look(self, at_end: bool) -> Outcome:
        probe = FileProbe(self._held_open)
        # Not by the clock on the wall: with other work beside it a new file was noticed late.
        began_s = time.thread_time()
        with closing(probe):
            listing = list_files(self.options.groups, self._registry.wanted())
            outcome = self._registry.update(listing, probe, self._clock(), at_end)
        self._looked_s += time.thread_time() - began_s
        return outcome

    def _held_open(self, known: Known) -> Content | None:
        opened = self._open.get(known.stream)
        return opened.content if opened is not None else None

    async def _apply(self, outcome: Outcome, output: Output) -> None:
        for known in outcome.reopen:
            self._close(known.stream)
        for known in outcome.begun:
            # A restart must not begin at the end as it is then.
            position = Position(known.stream, known.offset, known.facts.as_json())
            await output.put(EventBatch([], position=position))
        for found, known in outcome.copies:
            self.counters.copies += 1
            logger.info(
                "Source %s: %s is a copy of %s, which was read; it is not read again",
                self.name,
                found.path,
                known.facts.path,
            )
        for known in outcome.read:
            self._pending.read[known.stream] = known
        self._by_path.clear()
        for known in self._registry.streams.values():
            if known.seen is not None:
                self._by_path[known.facts.path] = known
                if known.seen.is_link:
                    # What is written there is not seen where the link is.
                    real = os.path.realpath(known.facts.path)
                    self._by_path[real] = known
                    self._link_directories.add(os.path.dirname(real))

    async def _read_round(self, output: Output) -> None:
        """A block of each file that has something, so that a large one does not hold up others."""
        read = self._pending.read
        for stream, known in list(read.items()):
            opened = self._open.get(stream) or await self._open_file(known)
            if opened is None:
                read.pop(stream, None)
                self._registry.try_again(known)
                continue
            if opened.tail.facts.path != known.facts.path:
                opened.tail.facts = replace(
                    opened.tail.facts, path=known.facts.path, outside=known.facts.outside
                )
                opened.form = self._form(known)
            tail = opened.tail
            for _ in range(self._blocks_at_once()):
                read_to = tail.decoder.read_to
                try:
                    batches = tail.read(opened.form)
                    if tail.decoder.read_to == read_to:
                        read.pop(stream, None)
                        if is_whole(opened.content):
                            batches = tail.finish(opened.form)
                except ContentChanged:
                    self._lose_content(known)
                    break
                except OSError as problem:
                    self._leave_for_now(known, problem)
                    break
                await self._put(batches, opened, output)
                if stream not in read:
                    break
            decoder = tail.decoder
            if decoder.pending and decoder.flush_s is not None:
                self._flush_at_s[stream] = self._clock() + decoder.flush_s
            else:
                self._flush_at_s.pop(stream, None)

    def _blocks_at_once(self) -> int:
        return 1 if self.options.batches_max is not None else 4

    async def _put(self, batches: list[EventBatch], opened: OpenFile, output: Output) -> None:
        tail, known = opened.tail, opened.known
        if not batches:
            return
        opened.read_at_s = self._clock()
        if tail.decoder.long_lines:
            self.counters.long_lines += tail.decoder.long_lines
            logger.warning(
                "Source %s: %d lines over the limit in %s, before byte %d",
                self.name,
                tail.decoder.long_lines,
                known.facts.path,
                tail.position,
            )
            tail.decoder.long_lines = 0
        # Noted first: what was put must not be read again, also if the last put is cancelled.
        known.offset = tail.position
        known.facts = tail.facts
        for batch in batches:
            await output.put(batch)

    async def _open_file(self, known: Known) -> OpenFile | None:
        path = known.facts.path
        if is_compressed(path):
            # Getting to the position takes as long as decompressing all before it.
            opened = await asyncio.to_thread(self._open_now, known)
        else:
            opened = self._open_now(known)
        if opened is None:
            return None
        while len(self._open) >= self._open_max:
            self._close(next(iter(self._open)))  # the one that was opened first
        self._open[known.stream] = opened
        self.open_most = max(self.open_most, len(self._open))
        known.is_open = True
        return opened

    def _open_now(self, known: Known) -> OpenFile | None:
        content = open_if_same(known.facts.path, *known.key)
        if content is None:
            return None
        try:
            if not known.facts.hold(content):
                content.close()
                self._lose_content(known)
                return None
            decoder = self.options.new_decoder(known.offset)
            tail = Tail(known.stream, known.facts, decoder, content)
        except OSError as problem:
            content.close()
            say_unreadable(known.facts.path, problem)
            return None
        return OpenFile(known, tail, content, self._form(known), self._clock())

    def _form(self, known: Known) -> BatchForm:
        options = self.options
        headers = dict(self._groups[known.group].headers) if known.group else {}
        if options.file_header:
            headers[options.file_header] = known.facts.path
        header = BYTE_OFFSET_HEADER if options.byte_offset_header else None
        return BatchForm(headers, options.batch_size, header)

    def _leave_for_now(self, known: Known, problem: OSError) -> None:
        """A bad sector, a server of files that is away: the others go on."""
        say_unreadable(known.facts.path, problem)
        self._close(known.stream)
        self._pending.read.pop(known.stream, None)
        self._registry.try_again(known)

    def _lose_content(self, known: Known) -> None:
        """The file was emptied or written anew: what it is now is decided from a new listing."""
        logger.info("Source %s: %s no longer has what was read", self.name, known.facts.path)
        self._close(known.stream)
        self._pending.read.pop(known.stream, None)
        self._registry.changed(known)
        self._pending.listing = True

    async def _flush(self, output: Output) -> None:
        """Events that waited for more lines long enough."""
        now_s = self._clock()
        for stream, at_s in list(self._flush_at_s.items()):
            opened = self._open.get(stream)
            if opened is None:
                del self._flush_at_s[stream]
            elif now_s >= at_s:
                del self._flush_at_s[stream]
                try:
                    batches = opened.tail.flush(opened.form)
                except OSError as problem:
                    self._leave_for_now(opened.known, problem)
                    continue
                await self._put(batches, opened, output)

    async def _close_idle(self, output: Output) -> None:
        now_s = self._clock()
        idle_s = self.options.idle_timeout_ms / 1000
        for stream, opened in list(self._open.items()):
            if stream in self._pending.read or now_s - opened.read_at_s < idle_s:
                continue
            try:
                is_deleted = opened.content.stat().st_nlink == 0
                # Nobody can find it any more; its last line will not be finished.
                batches = opened.tail.finish(opened.form) if is_deleted else []
            except OSError as problem:
                self._leave_for_now(opened.known, problem)
                continue
            if is_deleted:
                await self._put(batches, opened, output)
            elif isinstance(opened.content, CompressedContent) and not opened.content.complete:
                logger.warning(
                    "Source %s: %s is cut short or damaged%s: %d bytes of it could be read",
                    self.name,
                    opened.known.facts.path,
                    opened.content.problem and f" ({opened.content.problem})",
                    opened.tail.decoder.read_to,
                )
            self._close(stream)

    def _close(self, stream: str) -> None:
        opened = self._open.pop(stream, None)
        if opened is not None:
            opened.content.close()
            opened.known.is_open = False


def is_whole(content: OpenContent) -> bool:
    """Whether it will not grow any more, so that its last line needs no newline."""
    return isinstance(content, CompressedContent) and content.complete


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
        pattern = python_pattern(pattern)
        groups.append(FileGroup.parse(group, os.path.join(directory, pattern), own))
    batches_max = options.number("maxBatchCount")
    return TaildirSource(
        name,
        TaildirOptions(
            groups,
            new_decoder=decoder_maker(options),
            batch_size=options.number("batchSize"),
            batches_max=batches_max if options.given("maxBatchCount") else None,
            skip_to_end=options.flag("skipToEnd"),
            idle_timeout_ms=options.number("idleTimeout"),
            file_header=options.text("fileHeaderKey") if options.flag("fileHeader") else None,
            byte_offset_header=options.flag("byteOffsetHeader"),
            position_file=os.path.expanduser(options.text("positionFile")),
        ),
    )
