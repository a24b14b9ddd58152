"""What a connection has to send, in as few buffers as serve: see `server/output.py`."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ottla.seams.network import Data, FileTooShort, Readable
from ottla.server.limits import (
    CACHE_ASK_BYTES,
    CACHE_PIECE_BYTES,
    DOUBT_BYTES,
    INLINE_BYTES_MAX,
    PREAD_BYTES_MAX,
    SEND_BYTES_PER_TURN,
)
from ottla.server.output import Output
from ottla.wire.out import FileRange, Out
from tests.server.fake import MemoryFile, answer, file_answer


class SlowStream:
    """Takes at most so many bytes at a time, and notes in how many buffers they were offered."""

    peer = peer_host = ""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.sent = bytearray()
        self.buffers: list[int] = []

    def send(self, buffers: Sequence[Data], more: bool = False) -> int:
        self.buffers.append(len(buffers))
        taken = b"".join(buffers)[: self.takes]
        self.sent += taken
        return len(taken)

    def send_file(self, file: Readable, position: int, size: int) -> int:
        data = file.pread(min(size, self.takes), position)
        self.sent += data
        return len(data)


class AskedFile(MemoryFile):
    """Notes what it was asked to have in the cache, and gives out nothing else."""

    def __init__(self, data: bytes, missing: int = -1) -> None:
        super().__init__(data)
        self.asked: list[tuple[int, int]] = []
        self.known_to = 0
        self.missing = missing  # the position of a byte that is not cached

    def is_cached(self, position: int, size: int) -> bool:
        self.asked.append((position, size))
        if position <= self.missing < position + size:
            return False
        self.known_to = position + size
        return True

    def pread(self, size: int, position: int) -> bytes:
        assert position + size <= self.known_to
        return super().pread(size, position)


def sent_by(output: Output, takes: int) -> SlowStream:
    """A stream that has taken all there was."""
    stream = SlowStream(takes)
    while not output.send(stream):  # type: ignore[arg-type]
        pass
    assert output.held == 0
    return stream


@pytest.mark.parametrize("after", [b"", b"tags"])
def test_a_few_records_leave_in_one_buffer_with_their_answer(after: bytes) -> None:
    """One system call with one buffer, wherever in the answer the records are."""
    output = Output()
    out = file_answer(b"head", MemoryFile(b"..records.."), 2, 7, after)
    output.put(out)
    assert output.held == len(out) == 4 + 4 + 7 + len(after)
    stream = sent_by(output, takes=1000)
    assert stream.sent[4:] == b"headrecords" + after
    assert stream.buffers == [1]


def test_one_partition_s_largest_answer_leaves_in_one_turn() -> None:
    """`max.partition.fetch.bytes` of records, with what is before and after them, is one turn."""
    output = Output()
    size = 1024 * 1024
    output.put(file_answer(b"head" * 100, MemoryFile(bytes(size)), 0, size, b"tags"))
    assert output.send(SlowStream(takes=2 * size))  # type: ignore[arg-type]


def test_a_file_that_has_too_little_is_noticed() -> None:
    """Before anything of the answer is queued."""
    output = Output()
    with pytest.raises(FileTooShort):
        output.put(file_answer(b"head", MemoryFile(b"short"), 0, 7, b""))
    assert not output.pieces


def test_any_answers_leave_whole_and_in_order() -> None:
    """Ranges of all sizes, one or more in an answer, to peers that take any number of bytes."""
    chance = random.Random(1)
    data = chance.randbytes(4 * PREAD_BYTES_MAX)
    sizes = (0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, PREAD_BYTES_MAX, PREAD_BYTES_MAX + 1)
    for _ in range(200):
        output, expected = Output(), b""
        for _ in range(chance.randint(1, 4)):
            out = Out(answer(b"x"))
            whole = bytes(out)
            for _ in range(chance.randint(0, 3)):
                position, size = chance.randrange(1000), chance.choice(sizes)
                out.add_blob(FileRange(MemoryFile(data), position, size))
                whole += data[position : position + size]
                more = chance.choice((b"", b"between"))
                out += more
                whole += more
            output.put(out)
            expected += whole
        assert sent_by(output, chance.choice((1000, 5000, 10**6))).sent == expected


def test_a_socket_that_takes_little_is_no_reason_to_ask_the_cache_often() -> None:
    """One question for what goes out in ten turns; nothing is sent that was not asked about."""
    size = 2 * CACHE_ASK_BYTES + 5
    file, output = AskedFile(bytes(size)), Output(asks_cache=True)
    output.put(file_answer(b"head", file, 0, size, b"tags"))
    sent_by(output, takes=100_000)
    piece = CACHE_ASK_BYTES
    assert file.asked == [(0, piece), (piece, piece), (2 * piece, 5)]


def test_a_page_that_is_missing_holds_up_what_is_near_it() -> None:
    """The turns before its own leave without waiting, one question more for each; it is waited for
    from the beginning of its turn on, with one question more.
    """
    turn = SEND_BYTES_PER_TURN
    size = 4 * turn
    file, output = AskedFile(bytes(size), missing=2 * turn + 5), Output(asks_cache=True)
    output.put(file_answer(b"", file, 0, size, b""))
    stream = SlowStream(takes=size)
    while output.cold_at < 0:
        assert not output.send(stream)  # type: ignore[arg-type]
    assert output.cold_at == 2 * turn == len(stream.sent) - 4
    assert file.asked == [
        *((0, size), (0, turn)),
        *((turn, size - turn), (turn, turn)),
        *((2 * turn, size - 2 * turn), (2 * turn, turn)),
    ]


def test_what_lies_behind_the_bytes_read_ahead_is_not_sent_unasked() -> None:
    """A turn's worth of bytes may begin in what was read ahead and end beyond it."""
    file, output = AskedFile(bytes(300_000)), Output(asks_cache=True)
    output.put(file_answer(b"", file, 0, 300_000, b""))
    output.cold_at = 0
    output.read_ahead(100_000)
    file.known_to = 100_000
    sent_by(output, takes=1_000_000)
    piece = CACHE_PIECE_BYTES
    assert file.asked == [(100_000, piece), (100_000 + piece, 200_000 - piece)]


def test_a_reader_that_waited_for_the_device_is_asked_for_in_pieces() -> None:
    """What the kernel reads ahead of it counts as cached while it is on its way: it is sent up to
    the first piece that is not there, and waits for that one in a thread again.
    """
    turn, piece = SEND_BYTES_PER_TURN, CACHE_PIECE_BYTES
    file, output = AskedFile(bytes(3 * turn), missing=turn + 2 * piece), Output(asks_cache=True)
    output.put(file_answer(b"", file, 0, 3 * turn, b""))
    output.cold_at = 0
    output.read_ahead(turn)
    file.known_to = turn
    stream = SlowStream(takes=3 * turn)
    while output.cold_at < 0:
        assert not output.send(stream)  # type: ignore[arg-type]
    assert output.cold_at == turn + 2 * piece == len(stream.sent) - 4
    assert file.asked == [(turn + at * piece, piece) for at in (0, 1, 2, 2)]


def test_it_is_asked_for_as_others_are_once_enough_was_cached() -> None:
    """The doubt costs a question for each piece."""
    file, output = AskedFile(bytes(2 * SEND_BYTES_PER_TURN)), Output(asks_cache=True)
    output.cold_at = 0
    output.read_ahead(0)
    for _ in range(DOUBT_BYTES // SEND_BYTES_PER_TURN + 1):
        output.put(file_answer(b"", file, 0, SEND_BYTES_PER_TURN, b""))
        sent_by(output, takes=SEND_BYTES_PER_TURN)
    file.asked.clear()
    output.put(file_answer(b"", file, 0, 2 * SEND_BYTES_PER_TURN, b""))
    sent_by(output, takes=SEND_BYTES_PER_TURN)
    assert file.asked == [(0, 2 * SEND_BYTES_PER_TURN)]


def test_after_a_pause_the_cache_is_asked_again() -> None:
    """The bytes may have left it meanwhile."""
    size = 2 * SEND_BYTES_PER_TURN
    file, output = AskedFile(bytes(size)), Output(asks_cache=True)
    output.put(file_answer(b"", file, 0, size, b""))
    stream = SlowStream(takes=size)
    assert not output.send(stream)  # type: ignore[arg-type]
    sent = len(stream.sent) - 4
    output.ask_again()
    sent_by(output, takes=size)
    assert file.asked == [(0, size), (sent, size - sent)]
