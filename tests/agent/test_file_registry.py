"""Which file is which stream: decisions on files that are a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from ottla.agent.events import Position
from ottla.agent.files.facts import CONFIRM_BYTES, Content
from ottla.agent.files.listing import Found
from ottla.agent.files.registry import SETTLE_S, Known, Outcome, Registry

LONG = b"".join(b"line %d\n" % number for number in range(500))
assert len(LONG) > 2 * CONFIRM_BYTES


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def pread(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]


@dataclass
class Disk:
    """Files by path: an inode and bytes. It is the probe as well."""

    files: dict[str, tuple[int, Bytes]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)  # paths that no filegroup has
    now_s: float = 0.0

    def put(self, path: str, inode: int, data: bytes) -> None:
        self.files[path] = (inode, Bytes(data))

    def rename(self, path: str, to: str) -> None:
        self.files[to] = self.files.pop(path)

    def listing(self) -> list[Found]:
        return [
            Found(
                path, 1, inode, data.size(), hash(data.data), None if path in self.outside else "g"
            )
            for path, (inode, data) in self.files.items()
        ]

    def content(self, found: Found) -> Content | None:
        return self.files[found.path][1]

    def trim(self) -> None:
        return

    def failed(self, found: Found, problem: OSError) -> None:
        raise problem

    def content_of(self, known: Known) -> Content | None:
        return self.content(known.seen) if known.seen else None


class Follower:
    """A registry whose streams read all they can, at once: what each read, by stream."""

    def __init__(self, disk: Disk, positions: dict[str, Position] | None = None) -> None:
        numbers = count(len(positions or {}) + 1)
        self.disk = disk
        self.registry = Registry(positions or {}, lambda: f"s{next(numbers)}")
        self.read: dict[str, bytes] = {}

    def look(self, read: bool = True, at_end: bool = False) -> Outcome:
        outcome = self.registry.update(self.disk.listing(), self.disk, self.disk.now_s, at_end)
        for known in outcome.read if read else ():
            content = self.disk.content_of(known)
            assert content is not None
            if not known.facts.hold(content):
                self.registry.changed(known)  # as a source does when it reads
                return self.look()
            new = content.pread(1 << 30, known.offset)
            if new:
                self.read[known.stream] = self.read.get(known.stream, b"") + new
                self.advance(known, content.size())
        return outcome

    def advance(self, known: Known, offset: int) -> None:
        content = self.disk.content_of(known)
        assert content is not None
        known.offset = offset
        known.facts = known.facts.at(content, offset)

    def positions(self) -> dict[str, Position]:
        return {
            known.stream: Position(known.stream, known.offset, known.facts.as_json())
            for known in self.registry.streams.values()
        }


def test_a_renamed_file_keeps_its_stream() -> None:
    """Device and inode are the same, so what follows is read in the same stream."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\n")
    follower = Follower(disk)
    follower.look()
    disk.rename("/a.log", "/a.log.1")
    disk.put("/a.log.1", 1, b"one\ntwo\n")
    disk.put("/a.log", 2, b"three\n")
    follower.look()
    assert follower.read == {"s1": b"one\ntwo\n", "s2": b"three\n"}
    assert follower.registry.streams["s1"].facts.path == "/a.log.1"


def test_a_reused_inode_is_another_file() -> None:
    """The content decides: the inode of a deleted file is given to the next one."""
    disk = Disk()
    disk.put("/a.log", 1, LONG)
    follower = Follower(disk)
    follower.look()
    disk.files.clear()
    disk.put("/b.log", 1, LONG.replace(b"line", b"LINE") + b"more\n")
    again = Follower(disk, follower.positions())
    again.look()
    assert again.read == {"s2": disk.files["/b.log"][1].data}


def test_an_emptied_file_begins_anew() -> None:
    """Truncation: less than was read is there, and it is a new stream from its first byte."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\ntwo\n")
    follower = Follower(disk)
    follower.look()
    disk.put("/a.log", 1, b"3\n")
    follower.look()
    assert follower.read == {"s1": b"one\ntwo\n", "s2": b"3\n"}


def test_copytruncate_reads_the_rest_from_the_copy() -> None:
    """The copy has what was written before the file was emptied, and goes on as the old stream."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\n")
    follower = Follower(disk)
    follower.look()
    disk.put("/a.log.1", 2, b"one\nrest\n")
    disk.put("/a.log", 1, b"new\n")
    follower.look()
    assert follower.read == {"s1": b"one\nrest\n", "s2": b"new\n"}


def test_a_copy_outside_the_pattern_gives_its_rest_only() -> None:
    """A file that no filegroup has is read for the rest of a stream that lost its file."""
    disk = Disk(outside={"/a.log.1", "/b.log.1"})
    disk.put("/a.log", 1, b"one\n")
    follower = Follower(disk)
    follower.look()
    disk.put("/a.log.1", 2, b"one\nrest\n")
    disk.put("/a.log", 1, b"new\n")
    disk.put("/b.log.1", 3, b"other\n")
    follower.look()
    assert follower.read == {"s1": b"one\nrest\n", "s2": b"new\n"}


def test_a_copy_is_not_read_again() -> None:
    """Neither a short one with a name that says so, nor a long one with any name."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\n")
    disk.put("/b.log", 2, LONG)
    follower = Follower(disk)
    follower.look()
    disk.put("/a.log.bak", 3, b"one\n")
    disk.put("/elsewhere", 4, LONG)
    assert follower.look().waits  # they may be growing
    disk.now_s += SETTLE_S
    assert len(follower.look().copies) == 2
    disk.put("/b.log", 2, LONG + b"more\n")
    follower.look()
    again = Follower(disk, follower.positions())
    again.look()
    assert follower.read == {"s1": b"one\n", "s2": LONG + b"more\n"}
    assert again.read == {}


def test_a_copy_of_what_is_not_read_yet_is_read_once() -> None:
    """Both are there at the first look, whichever of them is listed first; short ones are two."""
    for names in ("/a.log", "/a.log.1"), ("/a.log.1", "/a.log"):
        disk = Disk()
        for number, name in enumerate(names):
            disk.put(name, number, LONG + b"more\n" if name == "/a.log" else LONG)
        follower = Follower(disk)
        for _ in range(3):
            follower.look()
            disk.now_s += SETTLE_S
        assert list(follower.read.values()) == [LONG + b"more\n"]
    disk = Disk()
    disk.put("/a.log", 1, b"started\n")
    disk.put("/a.log.1", 2, b"started\n")
    follower = Follower(disk)
    follower.look()
    assert follower.read == {"s1": b"started\n", "s2": b"started\n"}


def test_a_copy_that_goes_on_is_a_stream_of_its_own() -> None:
    """From the line where the two files differ; what they have in common was read."""
    disk = Disk()
    disk.put("/a.log", 1, LONG + b"unfin")
    follower = Follower(disk)
    follower.look(read=False)
    follower.advance(follower.registry.streams["s1"], 2000)
    disk.put("/b", 2, LONG + b"unfinished\n")
    assert follower.look(read=False).waits  # until the stream has read as far
    follower.advance(follower.registry.streams["s1"], len(LONG))
    outcome = follower.look()
    [begun] = outcome.begun
    assert begun.facts.start == len(LONG)
    assert follower.read == {"s2": b"unfinished\n"}


def test_equal_first_lines_stay_two() -> None:
    """Two files that begin alike are two, whatever the first one has read meanwhile."""
    disk = Disk()
    disk.put("/a.log", 1, b"# header\n")
    follower = Follower(disk)
    follower.look()
    disk.put("/b.log", 2, b"# header\n")
    disk.put("/a.log", 1, b"# header\n1\n")
    follower.look()
    disk.put("/c.log", 3, b"# header\n2\n")
    follower.look()
    assert follower.read == {"s1": b"# header\n1\n", "s2": b"# header\n", "s3": b"# header\n2\n"}


def test_a_new_file_under_an_old_name_is_no_copy() -> None:
    """After a rotation the new file begins with the same line as the old one: it is read."""
    disk = Disk()
    disk.put("/a.log", 1, b"started\n")
    follower = Follower(disk)
    follower.look()
    disk.rename("/a.log", "/a.log.1")
    disk.put("/a.log", 2, b"started\n")
    follower.look()
    assert follower.read == {"s1": b"started\n", "s2": b"started\n"}


def test_a_copy_being_made_is_waited_for() -> None:
    """While it has only the beginning of what was read, it is left alone until it stands still."""
    disk = Disk()
    disk.put("/a.log", 1, LONG)
    follower = Follower(disk)
    follower.look()
    disk.put("/copy", 2, LONG[:1500])
    assert follower.look().waits
    disk.now_s += SETTLE_S / 2
    disk.put("/copy", 2, LONG[:2000])
    assert follower.look().waits
    disk.now_s += SETTLE_S / 2
    assert follower.look().waits
    disk.put("/copy", 2, LONG)
    disk.put("/part", 3, LONG[:1500])
    follower.look()
    disk.now_s += SETTLE_S
    assert len(follower.look().copies) == 2
    disk.put("/part", 3, LONG[:1500] + b"more\n")
    follower.look()
    assert follower.read == {"s1": LONG, "s3": LONG[:1500].split(b"\n")[-1] + b"more\n"}


def test_a_file_that_vanished_comes_back() -> None:
    """Moved away and back it has its inode; from a backup it has its content."""
    disk = Disk()
    disk.put("/a.log", 1, LONG)
    follower = Follower(disk)
    follower.look()
    away = disk.files.pop("/a.log")
    follower.look()
    disk.files["/a.log"] = away
    follower.look()
    disk.files.clear()
    follower.look()
    disk.put("/a.log", 9, LONG + b"more\n")
    follower.look()
    assert follower.read == {"s1": LONG + b"more\n"}


def test_links_lead_to_one_file() -> None:
    """A file with two names is read once, and keeps the name that it had."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\n")
    disk.put("/link.log", 1, b"one\n")
    follower = Follower(disk)
    follower.look()
    again = Follower(disk, follower.positions())
    again.look()
    assert follower.read == {"s1": b"one\n"}
    assert again.read == {}
    assert again.registry.streams["s1"].facts.path == "/a.log"


def test_skip_to_end_begins_behind_the_last_whole_line() -> None:
    """Only files that no position knows; the unfinished line is read when it is whole."""
    disk = Disk()
    disk.put("/a.log", 1, b"one\ntwo\nthr")
    follower = Follower(disk)
    [begun] = follower.look(read=False, at_end=True).begun
    assert begun.offset == begun.facts.start == len(b"one\ntwo\n")
