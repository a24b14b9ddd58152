"""The `exec` source: what a command prints, a line an event.

A command cannot be asked again, so its events have no position: what it prints while the agent is
down is lost. A full channel makes the command wait, because nobody reads its pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Mapping

from ..config.options import Options
from ..context import Context
from ..events import EventBatch, Position
from ..parts import Output

logger = logging.getLogger(__name__)
BLOCK_BYTES = 64 * 1024
LINE_BYTES_MAX = 1_000_000  # a record of them is what a topic takes by default; others are split
STOP_S = 2.0  # from SIGTERM to SIGKILL


class ExecSource:
    replays = False

    def __init__(
        self,
        name: str,
        arguments: list[str],
        *,
        restart: bool = False,
        restart_throttle_ms: int = 10_000,
        log_stderr: bool = False,
        batch_size: int | None = None,
    ) -> None:
        """Without a batch size what was read at once is a batch."""
        self.name = name
        self.arguments = arguments
        self.restart = restart
        self.restart_throttle_ms = restart_throttle_ms
        self.log_stderr = log_stderr
        self.batch_size = batch_size

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        while True:
            await self._run_once(output)
            if not self.restart:
                return
            await asyncio.sleep(self.restart_throttle_ms / 1000)

    async def _run_once(self, output: Output) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.arguments,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE if self.log_stderr else DEVNULL,
                start_new_session=True,  # what a shell started ends with it
            )
        except OSError as error:
            logger.error("Source %s: cannot run %s: %s", self.name, self.arguments[0], error)
            return
        errors = asyncio.create_task(self._log_errors(process))
        try:
            await self._read(process, output)
            code = await process.wait()
            logger.info("Source %s: the command ended with exit code %d", self.name, code)
        finally:
            errors.cancel()
            await asyncio.shield(end_group(process))

    async def _read(self, process: Process, output: Output) -> None:
        assert process.stdout is not None
        rest = b""
        while block := await process.stdout.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            while len(rest) > LINE_BYTES_MAX:
                logger.warning("Source %s: a line is too long, and is split", self.name)
                lines.append(rest[:LINE_BYTES_MAX])
                rest = rest[LINE_BYTES_MAX:]
            for batch in self._batches(lines):
                await output.put(batch)
        for batch in self._batches([rest] if rest else []):
            await output.put(batch)

    def _batches(self, lines: list[bytes]) -> Iterator[EventBatch]:
        size = self.batch_size or len(lines) or 1
        for start in range(0, len(lines), size):
            yield EventBatch([line.removesuffix(b"\r") for line in lines[start : start + size]])

    async def _log_errors(self, process: Process) -> None:
        while process.stderr is not None and (block := await process.stderr.read(BLOCK_BYTES)):
            for line in block.splitlines():
                logger.warning("Source %s: stderr: %s", self.name, line.decode("utf-8", "replace"))


async def end_group(process: Process) -> None:
    """Ends a process and all that it has started in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S)
            break


def from_options(name: str, options: Options, context: Context) -> ExecSource:
    """With a shell the command is its last word; without, words are split at spaces, as Flume
    splits them."""
    command, shell = options.text("command"), options.text_or_none("shell")
    return ExecSource(
        name,
        [*shell.split(), command] if shell is not None else command.split(),
        restart=options.flag("restart"),
        restart_throttle_ms=options.number("restartThrottle"),
        log_stderr=options.flag("logStdErr"),
        batch_size=options.number("batchSize") if options.given("batchSize") else None,
    )
