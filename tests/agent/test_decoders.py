"""Decoders beyond lines: stack traces, JSON documents, blobs; and which one the options choose."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ottla.agent.events import Position
from ottla.agent.files.blob import BlobDecoder
from ottla.agent.files.facts import FileFacts
from ottla.agent.files.json_lines import JsonDecoder
from ottla.agent.files.lines import Cut, LineDecoder
from ottla.agent.files.listing import FileGroup
from ottla.agent.files.multiline import MultiLineDecoder
from ottla.agent.matching.bounded import Bounded
from ottla.agent.runner import least_positions
from ottla.agent.sources.taildir import TaildirOptions, TaildirSource
from tests.agent.files_harness import Collected, Running, Ticks, append

TRACE = b"ERROR one\n\tat a\n\tat b\nINFO two\nWARN three\n\tat c\n"


def test_a_stack_trace_is_one_event() -> None:
    """By what a first line looks like, or by what a further line looks like."""
    for decoder in (
        MultiLineDecoder(LineDecoder(), Bounded(rb"[A-Z]+ ", "firstLine")),
        MultiLineDecoder(LineDecoder(), None, Bounded(rb"\s", "firstLine")),
    ):
        cut = decoder.feed(TRACE)
        assert cut.bodies == [b"ERROR one\n\tat a\n\tat b", b"INFO two"]
        assert decoder.position == cut.ends[-1] == TRACE.index(b"WARN")
        assert decoder.pending
        assert decoder.flush() == Cut([b"WARN three\n\tat c"], [len(TRACE)])
        assert not decoder.pending


@given(st.lists(st.integers(0, len(TRACE)), max_size=5), st.integers(0, len(TRACE)))
def test_a_restart_groups_the_same_lines(cuts: list[int], stop: int) -> None:
    """Wherever a reader stopped, one that begins at its position gives the events that follow."""
    first = MultiLineDecoder(LineDecoder(), Bounded(rb"[A-Z]+ ", "firstLine"))
    points = sorted({0, stop, *(cut for cut in cuts if cut < stop)})
    bodies: list[bytes] = []
    for start, end in zip(points, points[1:], strict=False):  # noqa: RUF007
        bodies += first.feed(TRACE[start:end]).bodies
    second = MultiLineDecoder(LineDecoder(first.position), Bounded(rb"[A-Z]+ ", "firstLine"))
    bodies += second.feed(TRACE[first.position :]).bodies + second.finish().bodies
    assert bodies == [b"ERROR one\n\tat a\n\tat b", b"INFO two", b"WARN three\n\tat c"]


def test_an_event_of_many_lines_is_cut() -> None:
    """A pattern that never matches does not hold the whole file in memory."""
    decoder = MultiLineDecoder(LineDecoder(), Bounded(b"never", "firstLine"), lines_max=2)
    assert decoder.feed(b"1\n2\n3\n4\n5\n").bodies == [b"1\n2", b"3\n4"]
    decoder = MultiLineDecoder(LineDecoder(), Bounded(b"never", "firstLine"), event_bytes_max=8)
    assert decoder.feed(b"one\ntwo\nthree\n").bodies == [b"one\ntwo"]


def test_the_last_trace_of_a_file_is_not_kept_back(tmp_path: Path) -> None:
    """When nothing was written for a while it is whole."""
    append(tmp_path / "a.log", TRACE.decode())
    ticks = Ticks()
    options = TaildirOptions(
        [FileGroup.parse("f1", f"{tmp_path}/a.log", {})],
        new_decoder=lambda at: MultiLineDecoder(LineDecoder(at), Bounded(rb"[A-Z]+ ", "firstLine")),
        new_watcher=lambda _: ticks,
        clock=ticks.clock,
    )

    async def run() -> Collected:
        output = Collected()
        async with Running(TaildirSource("r1", options), output):
            await ticks.caught_up()
        return output

    output = asyncio.run(run())
    assert output.lines[-1] == "WARN three\n\tat c"
    assert max(position.offset for position in output.positions.values()) == len(TRACE)


def test_fields_of_a_document() -> None:
    """They become the body and headers; a line that is no document stays, and is counted."""
    decoder = JsonDecoder(LineDecoder(), "log", ["stream", "n"])
    cut = decoder.feed(b'{"log":"text\\n","stream":"stderr","n":1}\nnone\n{"n":[2]}\n')
    assert cut.bodies == [b"text", b"none", b'{"n":[2]}']
    assert cut.headers == [{"stream": "stderr", "n": "1"}, {}, {"n": "[2]"}]
    assert decoder.malformed == 2


def test_a_file_is_a_blob() -> None:
    """One event at its end; a file over the limit is several."""
    decoder = BlobDecoder(0, 4)
    assert decoder.feed(b"abcdef") == Cut([b"abcd"], [4])
    assert decoder.finish() == Cut([b"ef"], [6])
    assert decoder.finish() == Cut([], [])


def test_a_sink_that_has_not_begun_a_file_gets_it_from_its_start() -> None:
    """The stream keeps its name, so that the sink that has read it skips what it has."""
    facts = FileFacts("/a", 1, 2, "head", "before", 10, 50).as_json()
    ahead = {"r1/x": Position("r1/x", 50, facts), "r1/y": Position("r1/y", 7, facts)}
    behind = {"r1/y": Position("r1/y", 5, facts), "r2/z": Position("r2/z", 1, facts)}
    assert least_positions("r1", [ahead, behind]) == {
        "r1/x": Position("r1/x", 10, facts),
        "r1/y": Position("r1/y", 5, facts),
    }


def test_two_sinks_of_which_one_knows_the_file(tmp_path: Path) -> None:
    """The file is recognised by what the one has read, and read from its start."""
    append(tmp_path / "a.log", "one\ntwo\n")

    def read(output: Collected, positions: dict[str, Position]) -> None:
        ticks = Ticks()
        group = FileGroup.parse("f1", f"{tmp_path}/a.log", {})
        options = TaildirOptions([group], new_watcher=lambda _: ticks, clock=ticks.clock)

        async def run() -> None:
            output.positions = positions
            async with Running(TaildirSource("r1", options), output):
                await ticks.caught_up()

        asyncio.run(run())

    first, second = Collected(), Collected()
    read(first, {})
    read(second, least_positions("r1", [first.positions, {}]))
    assert second.lines == ["one", "two"]
    offsets = {stream: position.offset for stream, position in first.positions.items()}
    assert {stream: at.offset for stream, at in second.positions.items()} == offsets
