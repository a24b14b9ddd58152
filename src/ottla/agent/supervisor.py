"""An agent that can be given another description while it runs.

Its components (see components.py) run side by side. A new description leaves alone those that it
does not change. The others are stopped as at the end of the agent: sources first, then what is in
memory is delivered; and only then the new ones start, so a file or a port has one reader at a time
and positions are where the old ones left them. Two things outlive their component: a source that
cannot read again and is described as before (kept_source.py), and those of its events in memory
that could not be delivered in time, which go to the channel of the same name.

A component that fails soon after a new description goes back to the one before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from .channels.memory import MemoryChannel
from .components import changes_between, components_of, is_as_before
from .config.description import AgentDescription, ConfigError, Part
from .events import EventBatch
from .kept_source import KeptSource
from .output import SourceOutput
from .parts import Channel, FencedError, Source
from .runner import DRAIN_S, Agent, Wiring
from .status import (
    AgentStatus,
    Running,
    SeenFile,
    channels_of,
    files_of,
    sinks_of,
    sources_of,
)

logger = logging.getLogger(__name__)
NOTHING: Mapping[str, Sequence[EventBatch]] = {}
PROVEN_S = 30.0  # a component that fails earlier than this after a reload is taken back

Build = Callable[[AgentDescription], Wiring]  # raises ConfigError


class Component:
    """Parts that run."""

    def __init__(self, description: AgentDescription, wiring: Wiring) -> None:
        self.description = description
        self.wiring = wiring
        self.agent = Agent(wiring)
        self.task: asyncio.Task[None] | None = None
        self.started_ms = 0
        self.started_s = 0.0

    def start(self, left: Mapping[str, Sequence[EventBatch]] = NOTHING) -> None:
        """`left`: what others left in channels of these names."""
        self.agent = Agent(self.wiring, left)
        self.started_ms = int(time.time() * 1000)
        self.started_s = time.monotonic()
        self.task = asyncio.create_task(self.agent.run())

    @property
    def kept(self) -> list[KeptSource]:
        return [each for each, _, _ in self.wiring.sources if isinstance(each, KeptSource)]

    @property
    def running(self) -> Running:
        described = self.description
        types = {
            f"{kind} {name}": part.type.name
            for kind, parts in (
                ("source", described.sources),
                ("channel", described.channels),
                ("sink", described.sinks),
            )
            for name, part in parts.items()
        }
        return Running(self.wiring, self.started_ms, types)

    @property
    def has_failed(self) -> bool:
        return self.task is not None and self.task.done()


class Request(NamedTuple):
    description: AgentDescription
    retry: bool
    answer: asyncio.Future[bool]


class Supervisor:
    def __init__(self, description: AgentDescription, build: Build, instance: str) -> None:
        """Makes the parts. Raises ConfigError."""
        self.description = description
        self.reloads = 0
        self._before: AgentDescription | None = None  # to go back to
        self._build = build
        self._instance = instance
        self._started_ms = int(time.time() * 1000)
        self._started_s = time.monotonic()
        self._requests: deque[Request] = deque()
        self._asked = asyncio.Event()
        self._components = [self._made(each, {}) for each in components_of(description)]

    def _made(self, description: AgentDescription, kept: Mapping[str, KeptSource]) -> Component:
        wiring = self._build(description)
        sources: list[tuple[Source, SourceOutput, Sequence[Channel]]] = []
        for source, output, channels in wiring.sources:
            if not source.replays:
                source = kept.get(source.name) or KeptSource(source)
            sources.append((source, output, channels))
        return Component(description, replace(wiring, sources=sources))

    async def run(self) -> None:
        """Until it is cancelled or a part fails for good."""
        try:
            for component in self._components:
                component.start()
            while True:
                await self._step()
        finally:
            await self._stop_all()

    async def _step(self) -> None:
        """The next request, or the next component that fails."""
        asked = asyncio.create_task(self._asked.wait())
        tasks = {each.task for each in self._components if each.task is not None}
        try:
            await asyncio.wait({*tasks, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        for component in list(self._components):
            if component.task is not None and component.task.done():
                await self._failed(component, component.task)
                return
        self._asked.clear()
        while self._requests:
            request = self._requests.popleft()
            before = self.description
            try:
                changed = await self._replace(request.description, retry=request.retry)
            except ConfigError as problem:
                request.answer.set_exception(problem)
                continue
            except BaseException:
                request.answer.cancel()
                raise
            if changed:
                self._before = before
            if not request.answer.done():
                request.answer.set_result(changed)

    async def _failed(self, component: Component, task: asyncio.Task[None]) -> None:
        problem = task.exception()
        assert problem is not None  # a component runs for ever
        before, self._before = self._before, None
        young = time.monotonic() - component.started_s < PROVEN_S
        if before is None or not young or isinstance(problem, FencedError):
            raise problem
        logger.error("What was reloaded fails: %s. What ran before runs again", problem)
        await self._replace(before)

    async def reload(self, description: AgentDescription, *, retry: bool = False) -> bool:
        """Runs another description from now on; returns whether that changes anything. With
        `retry` a source that has given up starts again. Raises ConfigError if parts cannot be made:
        then nothing has changed."""
        request = Request(description, retry, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._asked.set()
        return await request.answer

    async def _replace(self, description: AgentDescription, *, retry: bool = False) -> bool:
        old = self._components
        restart = [
            place
            for place, each in enumerate(old)
            if each.has_failed or (retry and each.agent.has_failed_source())
        ]
        changes = changes_between([each.description for each in old], description, restart)
        ending = [old[place] for place in changes.end]
        if not ending and not changes.begin:
            self.description = description
            return False
        kept = kept_sources(ending, description)
        beginning = [self._made(each, kept) for each in changes.begin]
        logger.info("%s", sentence_of(ending, beginning))
        for source in kept.values():
            source.keep, source.close_s = True, DRAIN_S
        try:
            await self._stop(ending, description)
        finally:
            for source in kept.values():
                source.keep = False
        left = {
            channel.name: batches
            for each in ending
            for channel in each.wiring.channels
            if isinstance(channel, MemoryChannel) and (batches := channel.left())
        }
        for component in beginning:
            component.start(left)
        self._components = [*(old[place] for place in changes.stay), *beginning]
        self.description = description
        self.reloads += 1
        await asyncio.sleep(0)  # a task that is cancelled before its first step drains nothing
        return True

    async def _stop(
        self, components: Sequence[Component], new: AgentDescription | None = None
    ) -> None:
        """Stops components, because of a new description or for good. What is in memory is
        delivered first, as far as it can be; what no new channel would have is waited for. If this
        is cancelled meanwhile, nothing is waited for any more."""
        for component in components:
            agent = component.agent
            if new is not None:
                agent.drains, ends_there = to_drain(component, new)
                agent.drain_s = None if ends_there else DRAIN_S
            if component.task is not None and not agent.is_stopping:
                component.task.cancel()
        tasks = [each.task for each in components if each.task is not None]
        cancelled = False
        while waiting := [task for task in tasks if not task.done()]:
            try:
                await asyncio.wait(waiting)
            except asyncio.CancelledError:
                cancelled = True
                for component in components:
                    component.agent.hurry()
        for task in tasks:
            if not task.cancelled():
                task.exception()  # the agent ends with it, or what ran before runs again
        if cancelled:
            raise asyncio.CancelledError

    async def _stop_all(self) -> None:
        try:
            await self._stop(self._components)
        finally:
            for component in self._components:
                for source in component.kept:
                    await source.end()

    def status(self) -> AgentStatus:
        """Everything but the files."""
        running = [each.running for each in self._components]
        return AgentStatus(
            self.description.name,
            self._instance,
            os.getpid(),
            self._started_ms,
            int(time.time() * 1000),
            int((time.monotonic() - self._started_s) * 1000),
            self.reloads,
            [status for each in running for status in sources_of(each)],
            [status for each in running for status in channels_of(each)],
            [status for each in running for status in sinks_of(each)],
        )

    def files(self) -> list[SeenFile]:
        return [file for each in self._components for file in files_of(each.running)]


def kept_sources(ending: Sequence[Component], new: AgentDescription) -> dict[str, KeptSource]:
    """Those of the components that end which go on in new ones; also one that has nothing more to
    say, whose command would run twice otherwise."""
    return {
        source.name: source
        for component in ending
        for source in component.kept
        if not source.has_failed
        and source.name in new.sources
        and is_as_before(component.description.sources, new.sources[source.name])
    }


def to_drain(component: Component, new: AgentDescription) -> tuple[set[str], bool]:
    """The channels that are emptied before the component ends, and whether there is nowhere else
    for what they hold. What is in memory goes to the channel of the same name, or is read again.
    What is in files is there again if the new channel has the same files."""
    names: set[str] = set()
    ends_there = False
    for channel in component.wiring.channels:
        before, after = component.description.channels[channel.name], new.channels.get(channel.name)
        if not channel.durable:
            names.add(channel.name)
            unread = [
                not source.replays and channel in fed for source, _, fed in component.wiring.sources
            ]
            ends_there |= after is None and any(unread)
        elif before.type.name == "file" and (after is None or not same_files(before, after)):
            names.add(channel.name)
            ends_there = True
    return names, ends_there


def same_files(one: Part, other: Part) -> bool:
    """Whether two channels of a name are one and the same on the disk."""
    return one.type is other.type and (
        (one.options.names("dataDirs"), one.options.text_or_none("checkpointDir"))
        == (other.options.names("dataDirs"), other.options.text_or_none("checkpointDir"))
    )


def sentence_of(ending: Sequence[Component], beginning: Sequence[Component]) -> str:
    def names(components: Sequence[Component]) -> str:
        described = [each.description for each in components]
        found = [
            name
            for each in described
            for parts in (each.sources, each.channels, each.sinks)
            for name in parts
        ]
        return ", ".join(found) or "nothing"

    return f"Reload: {names(ending)} end; then {names(beginning)} begin"
