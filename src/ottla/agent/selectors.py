"""Which channels an event goes into: optional channels, multiplexing, load_balancing.

Each required channel gets its part of a batch, maybe empty, with the batch's position: so the sinks
behind it get past what went elsewhere. Where events have positions the choice depends on nothing
but the event, so that a restart chooses again as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random

from .config.description import Part
from .events import EventBatch
from .output import Interceptor, SourceOutput, put_into
from .parts import Channel

logger = logging.getLogger(__name__)
OPTIONAL_WAIT_S = 0.5  # how long a full optional channel may hold up the source
MIX = 0x9E3779B1  # spreads offsets, which may all be even


class SelectedOutput(SourceOutput):
    """Parts of batches into channels."""

    def __init__(
        self, channels: Mapping[str, Channel], interceptors: Sequence[Interceptor]
    ) -> None:
        super().__init__(list(channels.values()), interceptors)
        self._by_name = dict(channels)
        self.events_missed = 0  # by optional channels

    async def _distribute(self, batch: EventBatch) -> None:
        required, optional = self.parts(batch)
        await asyncio.gather(
            *(put_into(self._by_name[name], part) for name, part in required.items()),
            *(self._offer(name, part) for name, part in optional.items()),
        )

    def parts(self, batch: EventBatch) -> tuple[dict[str, EventBatch], dict[str, EventBatch]]:
        """What the channels get: those that must have it, and those that may miss it."""
        raise NotImplementedError

    async def _offer(self, name: str, part: EventBatch) -> None:
        try:
            await asyncio.wait_for(put_into(self._by_name[name], part), OPTIONAL_WAIT_S)
        except TimeoutError:
            if not self.events_missed:
                logger.warning("Channel %s is full, and misses events: it is optional", name)
            self.events_missed += len(part)


class Replicating(SelectedOutput):
    """Each event into all channels; some of them may miss it."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        interceptors: Sequence[Interceptor],
        optional: Sequence[str],
    ) -> None:
        super().__init__(channels, interceptors)
        self._optional = set(optional)

    def required_channels(self) -> Sequence[Channel]:
        return [each for name, each in self._by_name.items() if name not in self._optional]

    def parts(self, batch: EventBatch) -> tuple[dict[str, EventBatch], dict[str, EventBatch]]:
        names = self._by_name
        return (
            {name: batch for name in names if name not in self._optional},
            {name: batch for name in names if name in self._optional},
        )


class Multiplexing(SelectedOutput):
    """A header's value chooses the channels."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        interceptors: Sequence[Interceptor],
        header: str,
        mapping: Mapping[str, Sequence[str]],
        default: Sequence[str],
        optional: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(channels, interceptors)
        self._header = header
        self._mapping = mapping
        self._default = default
        self._optional = optional
        chosen = set(default).union(*mapping.values())
        maybe = set().union(*optional.values())
        # Every channel gets the positions, also one that no value leads to.
        self._required = [name for name in channels if name in chosen or name not in maybe]
        self._maybe = [name for name in channels if name not in self._required]

    def required_channels(self) -> Sequence[Channel]:
        return [self._by_name[name] for name in self._required]

    def parts(self, batch: EventBatch) -> tuple[dict[str, EventBatch], dict[str, EventBatch]]:
        required: dict[str, list[int]] = {name: [] for name in self._required}
        optional: dict[str, list[int]] = {name: [] for name in self._maybe}
        for index in range(len(batch)):
            value = batch.headers_of(index).get(self._header, "")
            chosen = self._mapping.get(value, self._default)
            for name in chosen:
                required[name].append(index)
            for name in self._optional.get(value, ()):
                if name not in chosen:
                    # A channel that is required for other values gets one part of a batch.
                    (optional[name] if name in optional else required[name]).append(index)
        return parts_of(batch, required), parts_of(batch, optional)


class LoadBalancing(SelectedOutput):
    """Each event into one of the channels: by its offset where it has one, else batches in turn or
    at random."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        interceptors: Sequence[Interceptor],
        chance: Random | None = None,
    ) -> None:
        super().__init__(channels, interceptors)
        self._chance = chance
        self._turn = count()

    def parts(self, batch: EventBatch) -> tuple[dict[str, EventBatch], dict[str, EventBatch]]:
        names = list(self._by_name)
        if not batch.ends:
            turn = self._chance.randrange(1 << 30) if self._chance else next(self._turn)
            chosen = names[turn % len(names)]
            return {name: batch for name in names if name == chosen or batch.position}, {}
        shares: dict[str, list[int]] = {name: [] for name in names}
        for index, end in enumerate(batch.ends):
            shares[names[(end * MIX >> 16) % len(names)]].append(index)
        return parts_of(batch, shares), {}


def parts_of(batch: EventBatch, shares: Mapping[str, list[int]]) -> dict[str, EventBatch]:
    """The shares of the channels; an empty one is left out if there is no position to move."""
    return {
        name: batch if len(share) == len(batch) else batch.part(share)
        for name, share in shares.items()
        if share or batch.position is not None
    }


def output_of(
    selector: Part, channels: Mapping[str, Channel], interceptors: Sequence[Interceptor]
) -> SourceOutput:
    """The output that a selector's options describe."""
    options = selector.options
    if selector.type.name == "replicating":
        return Replicating(channels, interceptors, options.names("optional"))
    if selector.type.name == "load_balancing":
        chance = Random() if options.text("policy") == "random" else None
        return LoadBalancing(channels, interceptors, chance)
    return Multiplexing(
        channels,
        interceptors,
        options.text("header"),
        {value: names.split() for value, names in options.family("mapping.").items()},
        options.names("default"),
        {value: names.split() for value, names in options.family("optional.").items()},
    )
