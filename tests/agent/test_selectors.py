"""Selectors: which channel gets which part of a batch."""

from __future__ import annotations

import asyncio

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.events import EventBatch, Position
from ottla.agent.selectors import SelectedOutput, output_of

from .config.descriptions import agent_of, with_source

STATES = [{"state": "CZ"}, {"state": "US"}, {"state": "FR"}, {}]


def output(channels: dict[str, MemoryChannel], *lines: str) -> SelectedOutput:
    text = with_source("type = seq", *(f"selector.{line}" for line in lines))
    text = text.replace("a1.channels = c1", "a1.channels = c1 c2 c3")
    text = text.replace("r1.channels = c1", "r1.channels = c1 c2 c3")
    text += "\na1.channels.c2.type = memory\na1.channels.c3.type = memory"
    made = output_of(agent_of(text).sources["r1"].selector, channels, [])
    assert isinstance(made, SelectedOutput)
    return made


def batch(count: int, *, position: bool = True) -> EventBatch:
    bodies = [b"%d" % number for number in range(count)]
    own = [STATES[number % len(STATES)] for number in range(count)]
    if not position:
        return EventBatch(bodies, own_headers=list(own))
    return EventBatch(
        bodies, {}, list(own), Position("r1/x", count * 200), range(200, count * 200 + 1, 200)
    )


def parts(count: int, *lines: str, position: bool = True) -> dict[str, list[bytes]]:
    """What each channel gets of a batch; a channel that gets none is left out."""

    async def run() -> dict[str, list[bytes]]:
        channels = {name: MemoryChannel(name, 1000, 1 << 20) for name in ("c1", "c2", "c3")}
        required, optional = output(channels, *lines).parts(batch(count, position=position))
        return {name: part.bodies for name, part in {**required, **optional}.items()}

    return asyncio.run(run())


MULTIPLEXING = ("type = multiplexing", "header = state", "mapping.CZ = c1", "mapping.US = c2 c3")


def test_a_header_chooses_the_channels() -> None:
    """Flume's own example: values with channels, and the default for all others."""
    assert parts(4, *MULTIPLEXING, "default = c1") == {
        "c1": [b"0", b"2", b"3"],
        "c2": [b"1"],
        "c3": [b"1"],
    }


def test_an_empty_part_carries_the_position() -> None:
    """So the sinks of that channel get past it; without a position it would say nothing."""
    assert parts(1, *MULTIPLEXING) == {"c1": [b"0"], "c2": [], "c3": []}
    assert parts(1, *MULTIPLEXING, position=False) == {"c1": [b"0"]}


def test_optional_channels_of_a_value() -> None:
    """They are beside the required ones; one that is required for another value gets one part."""
    lines = ("type = multiplexing", "header = state", "default = c1", "optional.US = c2")
    assert parts(4, *lines) == {"c1": [b"0", b"1", b"2", b"3"], "c2": [b"1"], "c3": []}
    both = (*lines, "mapping.CZ = c2")
    assert parts(4, *both) == {"c1": [b"1", b"2", b"3"], "c2": [b"0", b"1"], "c3": []}


def test_load_is_balanced_the_same_after_a_restart() -> None:
    """The choice of an event with a position depends on its position alone; all get a share."""
    shares = parts(300, "type = load_balancing")
    assert sorted(int(body) for share in shares.values() for body in share) == list(range(300))
    assert all(len(share) > 60 for share in shares.values())
    assert shares == parts(300, "type = load_balancing")


def test_batches_without_positions_go_in_turn() -> None:
    """round_robin by batch."""

    async def run() -> list[list[str]]:
        channels = {name: MemoryChannel(name, 1000, 1 << 20) for name in ("c1", "c2", "c3")}
        made = output(channels, "type = load_balancing")
        return [list(made.parts(batch(2, position=False))[0]) for _ in range(4)]

    assert asyncio.run(run()) == [["c1"], ["c2"], ["c3"], ["c1"]]


def test_a_full_optional_channel_misses_events() -> None:
    """The others get them, and the source goes on."""

    async def run() -> tuple[int, int, int]:
        channels = {
            "c1": MemoryChannel("c1", 1000, 1 << 20),
            "c2": MemoryChannel("c2", 1000, 1 << 20),
            "c3": MemoryChannel("c3", 3, 1 << 20),
        }
        made = output(channels, "type = replicating", "optional = c3")
        await made.put(batch(2))
        await made.put(batch(2))
        return channels["c1"].events, channels["c3"].events, made.events_missed

    assert asyncio.run(run()) == (4, 2, 2)
