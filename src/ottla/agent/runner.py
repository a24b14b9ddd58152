"""An agent while it runs: sinks start first, because they know where the sources continue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .delivery import Delivery
from .events import Position
from .output import SourceOutput
from .parts import Channel, Source


@dataclass
class Wiring:
    """The parts of an agent, put together."""

    sources: Sequence[tuple[Source, SourceOutput, Sequence[Channel]]]
    channels: Sequence[Channel]
    deliveries: Sequence[Delivery]


async def run_agent(wiring: Wiring) -> None:
    """Runs until it is cancelled, or until all sources have ended and the channels are empty."""
    for delivery in wiring.deliveries:
        await delivery.start()
    sinks = [asyncio.create_task(delivery.run()) for delivery in wiring.deliveries]
    sources = []
    for source, output, channels in wiring.sources:
        fed = [delivery for delivery in wiring.deliveries if delivery.channel in channels]
        positions = least_positions(source.name, [delivery.positions for delivery in fed])
        sources.append(asyncio.create_task(source.run(output, positions)))
    try:
        done, _ = await asyncio.wait([*sources, *sinks], return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in [*sources, *sinks]:
            task.cancel()
        await asyncio.gather(*sources, *sinks, return_exceptions=True)
        for delivery in wiring.deliveries:
            await delivery.stop()
        for channel in wiring.channels:
            await channel.close()


def least_positions(source: str, held: Sequence[Mapping[str, Position]]) -> dict[str, Position]:
    """Where a source continues: a stream that a sink has not begun begins anew for all."""
    if not held:
        return {}
    streams = set.intersection(*(set(positions) for positions in held))
    return {
        stream: min((positions[stream] for positions in held), key=lambda one: one.offset)
        for stream in streams
        if stream.startswith(f"{source}/")
    }
