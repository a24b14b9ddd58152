"""The file_roll sink: lines in files, a new file every so often."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ottla.agent.events import EventBatch
from ottla.agent.sinks import file_roll
from ottla.agent.sinks.file_roll import FileRollOptions, FileRollSink


def texts(directory: Path) -> list[str]:
    paths = sorted(directory.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [path.read_text() for path in paths]


def test_a_new_file_begins_when_its_time_has_come(tmp_path: Path) -> None:
    """Named by the start and a number, as in Flume; nothing is written for no events."""
    now = 1000.0
    options = FileRollOptions(tmp_path, 30, prefix="log-", extension="txt")
    sink = FileRollSink("f", options, lambda: now)
    sink.start()
    sink.deliver([EventBatch([])])
    assert texts(tmp_path) == []
    sink.deliver([EventBatch([b"a", b"b"]), EventBatch([b"c"])])
    now = 1029.0
    sink.deliver([EventBatch([b"d"])])
    now = 1030.0
    sink.deliver([EventBatch([b"e"])])
    sink.stop()
    assert texts(tmp_path) == ["a\nb\nc\nd\n", "e\n"]
    names = sorted(path.name for path in tmp_path.iterdir())
    [series] = {name.split("-")[1] for name in names}
    assert int(series) <= time.time() * 1000
    assert names == [f"log-{series}-1.txt", f"log-{series}-2.txt"]


def test_headers_are_written_as_flume_does(tmp_path: Path) -> None:
    """`header_and_text`, without a line end if told so."""
    options = FileRollOptions(tmp_path, 0, append_newline=False, with_headers=True)
    sink = FileRollSink("f", options)
    sink.start()
    sink.deliver([EventBatch([b"x"], {"a": "1"}, [{"b": "2"}])])
    sink.stop()
    assert texts(tmp_path) == ["{a=1, b=2} x"]


def test_a_delivery_that_fails_half_way_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is there once when it is tried again."""
    sink = FileRollSink("f", FileRollOptions(tmp_path, 0))
    sink.start()
    sink.deliver([EventBatch([b"first"])])
    real = os.write
    writes = iter([lambda fd, data: real(fd, data[:3])])

    def failing(descriptor: int, data: memoryview) -> int:
        write = next(writes, None)
        if write is None:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(file_roll.os, "write", failing)
        with pytest.raises(OSError, match="No space"):
            sink.deliver([EventBatch([b"second"])])
    sink.deliver([EventBatch([b"second"])])
    sink.stop()
    assert texts(tmp_path) == ["first\nsecond\n"]


def test_a_file_that_cannot_be_synced_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is said; before, each roll on a disk that fails left a descriptor open."""
    sink = FileRollSink("f", FileRollOptions(tmp_path, 0))
    sink.start()
    sink.deliver([EventBatch([b"first"])])
    descriptor = sink._descriptor

    def failing(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_roll.os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        sink.stop()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_file_that_is_deleted_gets_no_more_events(tmp_path: Path, what: str) -> None:
    """What comes next is in a new file; before, it was written where nobody could find it."""
    sink = FileRollSink("f", FileRollOptions(tmp_path / "out", 0))
    sink.start()
    sink.deliver([EventBatch([b"first"])])
    if what == "file":
        next((tmp_path / "out").iterdir()).unlink()
    else:
        shutil.rmtree(tmp_path / "out")
    sink.deliver([EventBatch([b"second"])])
    sink.stop()
    assert texts(tmp_path / "out") == ["second\n"]
