"""Positions in a file, and who owns those in the topic."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.agent.events import FORGET, Position
from ottla.agent.instance import InstanceError, open_instance
from ottla.agent.positions import LINES_MIN, PositionFile


def test_positions_are_there_after_a_restart(tmp_path: Path) -> None:
    """Positions are there after a restart."""
    path = tmp_path / "k1.positions"
    kept = PositionFile(path)
    assert kept.open() == {}
    kept.write([Position("s/a", 5, {"inode": 7}), Position("s/b", 1)])
    kept.write([Position("s/a", 9, {"inode": 7})])
    again = PositionFile(path).open()
    assert again == {"s/a": Position("s/a", 9, {"inode": 7}), "s/b": Position("s/b", 1, {})}


def test_a_forgotten_stream_is_gone(tmp_path: Path) -> None:
    """A forgotten stream is gone."""
    path = tmp_path / "k1.positions"
    kept = PositionFile(path)
    kept.open()
    kept.write([Position("s/a", 5), Position("s/b", 1)])
    kept.write([Position("s/a", FORGET)])
    assert set(PositionFile(path).open()) == {"s/b"}


def test_the_file_does_not_grow_with_what_is_out_of_date(tmp_path: Path) -> None:
    """The file does not grow with what is out of date."""
    path = tmp_path / "k1.positions"
    kept = PositionFile(path)
    kept.open()
    for offset in range(3 * LINES_MIN):
        kept.write([Position("s/a", offset)])
    assert len(path.read_bytes().splitlines()) <= LINES_MIN + 2


def test_any_torn_tail_leaves_the_positions_before_it(tmp_path: Path) -> None:
    """Cut at each byte: what a line said that is not whole is delivered again, no more."""
    path = tmp_path / "k1.positions"
    kept = PositionFile(path)
    kept.open()
    for offset in range(5):
        kept.write([Position("s/a", offset)])
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        lines = whole[:size].count(b"\n")
        found = PositionFile(path).open()
        assert found == ({"s/a": Position("s/a", lines - 1, {})} if lines else {})


def test_a_damaged_line_is_left_out_and_the_file_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged line is left out and the file set aside."""
    path = tmp_path / "k1.positions"
    kept = PositionFile(path)
    kept.open()
    kept.write([Position("s/a", 1), Position("s/b", 2), Position("s/a", 3)])
    damaged = path.read_bytes().replace(b'"s/b", 2', b'"s/b", 9')
    path.write_bytes(damaged)
    assert PositionFile(path).open() == {"s/a": Position("s/a", 3, {})}
    [aside] = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == damaged
    assert "line 2 is damaged" in caplog.text


def test_an_instance_keeps_its_id_and_directory(tmp_path: Path) -> None:
    """The id is the same after a restart, and for all agents of the directory."""
    first = open_instance(tmp_path, "a1")
    other = open_instance(tmp_path, "a2")
    assert first.id == other.id
    first.close()
    again = open_instance(tmp_path, "a1")
    assert again.id == first.id
    assert again.directory == tmp_path / "a1"
    assert open_instance(tmp_path, "a3", "web-7").id == "web-7"
    with pytest.raises(InstanceError, match="--instance"):
        open_instance(tmp_path, "a4", "no spaces")


def test_a_second_process_on_one_directory_is_refused(tmp_path: Path) -> None:
    """A second process on one directory is refused."""
    held = open_instance(tmp_path, "a1")
    text = (
        "import sys; from pathlib import Path; from ottla.agent.instance import open_instance\n"
        "try: open_instance(Path(sys.argv[1]), 'a1')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "another agent a1 runs on it" in done.stdout
    held.close()


def test_an_instance_file_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    """A directory, or no text: what to try is said, and the directory is free again. Before, there
    was a traceback."""
    path = tmp_path / "instance"
    path.mkdir()
    with pytest.raises(InstanceError, match=r"Is a directory\nTry: --data-dir"):
        open_instance(tmp_path, "a1")
    path.rmdir()
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(InstanceError, match="not an instance id"):
        open_instance(tmp_path, "a1")
    path.unlink()
    open_instance(tmp_path, "a1").close()


@pytest.mark.parametrize("what", ["file", "directory", "moved", "directory moved", "restored"])
def test_a_file_that_is_taken_away_is_written_again(tmp_path: Path, what: str) -> None:
    """Deleted, moved away, or replaced by an older copy while the agent runs. Before, positions
    went to where nobody could find them, and a restart delivered all again."""
    path = tmp_path / "data" / "positions"
    kept = PositionFile(path)
    kept.open()
    kept.write([Position("s/a", 1)])
    backup = path.read_bytes()
    kept.write([Position("s/b", 2)])
    if what == "file":
        path.unlink()
    elif what == "directory":
        shutil.rmtree(path.parent)
    elif what == "moved":
        path.rename(tmp_path / "positions.old")
    elif what == "directory moved":
        path.parent.rename(tmp_path / "data.old")
    else:
        (tmp_path / "backup").write_bytes(backup)
        (tmp_path / "backup").rename(path)
    kept.write([Position("s/a", 3)])
    assert {each.offset for each in PositionFile(path).open().values()} == {2, 3}


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after it is not lost behind a line that was half written."""
    path = tmp_path / "positions"
    kept = PositionFile(path)
    kept.open()
    kept.write([Position("s/a", 1)])

    class Full:
        """As a file whose disk has space for a few bytes more."""

        def __init__(self, descriptor: int) -> None:
            self.fileno = lambda: descriptor

        def write(self, data: bytes) -> None:
            os.write(self.fileno(), data[:5])
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            os.close(self.fileno())

    assert kept._out is not None
    monkeypatch.setattr(kept, "_out", Full(os.dup(kept._out.fileno())))
    with pytest.raises(OSError, match="No space"):
        kept.write([Position("s/a", 2)])
    kept.write([Position("s/b", 3)])
    found = PositionFile(path).open()
    assert {name: each.offset for name, each in found.items()} == {"s/a": 2, "s/b": 3}
