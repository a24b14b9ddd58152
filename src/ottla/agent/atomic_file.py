"""Small files that are whole or as they were before, whatever happens."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file anew; on the disk when it returns."""
    _written_beside(path, data).replace(path)
    sync_directory(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Writes a file that is not there; if another process is first, its file stays."""
    beside = _written_beside(path, data)
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
    sync_directory(path.parent)


def _written_beside(path: Path, data: bytes) -> Path:
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return beside


def sync_directory(directory: Path) -> None:
    """Makes names in it last."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still there under its name: not deleted, moved away or replaced."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
