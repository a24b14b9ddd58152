"""Bytes into lines: blocks that end anywhere, lines over the limit."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.agent.files.lines import Cut, LineDecoder, LongLines


def fed(decoder: LineDecoder, data: bytes, cuts: list[int]) -> Cut:
    """All events of the data, fed in blocks that end at the cuts; the end is final."""
    bodies: list[bytes] = []
    ends: list[int] = []
    points = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(points):
        cut = decoder.feed(data[start:end])
        bodies += cut.bodies
        ends += cut.ends
        assert decoder.read_to == end
        assert not ends or ends[-1] <= decoder.position <= decoder.read_to
    last = decoder.finish()
    return Cut(bodies + last.bodies, ends + last.ends)


def dumb(data: bytes, limit: int, policy: LongLines) -> Cut:
    """The twin: all lines at once."""
    bodies: list[bytes] = []
    ends: list[int] = []
    offset = 0
    for line in data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n"):
        body = line.removesuffix(b"\n")
        end = offset + len(line)
        if len(body) <= limit or policy is LongLines.CUT:
            bodies.append(body[:limit])
            ends.append(end)
        elif policy is LongLines.SPLIT:
            while body:
                bodies.append(body[:limit])
                offset += len(bodies[-1])
                body = body[limit:]
                ends.append(offset if body else end)
        offset = end
    return Cut(bodies, ends)


@given(
    st.lists(st.text("ab", max_size=12), max_size=12),
    st.booleans(),
    st.lists(st.integers(0, 150), max_size=8),
    st.integers(1, 8),
    st.sampled_from(LongLines),
)
def test_blocks_may_end_anywhere(
    lines: list[str], ends_in_newline: bool, cuts: list[int], limit: int, policy: LongLines
) -> None:
    """The events and their ends are those of the whole, however the bytes come."""
    data = "\n".join(lines).encode() + (b"\n" if ends_in_newline else b"")
    assert fed(LineDecoder(0, limit, policy), data, cuts) == dumb(data, limit, policy)


def test_a_line_may_come_hours_later() -> None:
    """The position stays before an unfinished line."""
    decoder = LineDecoder(10)
    assert decoder.feed(b"one\ntw") == Cut([b"one"], array("q", [14]))
    assert decoder.position == 14
    assert decoder.feed(b"o") == Cut([], [])
    assert decoder.feed(b"\n") == Cut([b"two"], array("q", [18]))


def test_carriage_returns_and_other_bytes() -> None:
    """CR LF ends a line as in Flume; what is not UTF-8 goes through as it is."""
    assert LineDecoder().feed(b"a\r\n\xff\xfe\x00\n\r\nb\rc\n").bodies == [
        b"a",
        b"\xff\xfe\x00",
        b"",
        b"b\rc",
    ]


def test_a_line_of_100_mb_is_not_held() -> None:
    """Of a line far over the limit the limit is kept; it is counted, and the next one is whole."""
    block = b"x" * (1 << 20)
    for policy, expected in [(LongLines.CUT, [b"x" * 1000, b"next"]), (LongLines.DROP, [b"next"])]:
        decoder = LineDecoder(0, 1000, policy)
        for _ in range(100):
            assert decoder.feed(block).bodies == []
            assert decoder._held <= 1001
        cut = decoder.feed(b"\nnext\n")
        assert cut.bodies == expected
        assert cut.ends[-1] == decoder.position == 100 * len(block) + 6
        assert cut.starts == ([0] if policy is LongLines.CUT else []) + [100 * len(block) + 1]
        assert decoder.long_lines == 1


def test_a_split_leaves_characters_whole() -> None:
    """Flume splits by characters: a piece does not end inside one."""
    decoder = LineDecoder(0, 4, LongLines.SPLIT)
    bodies = decoder.feed("aéüö\n".encode()).bodies
    assert [body.decode() for body in bodies] == ["aé", "üö"]
