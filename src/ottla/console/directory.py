"""The console's directory belongs to one process: two would write two histories into one file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from .config.options import ConfigError

FILE = "console.lock"  # stays there; only the lock on it counts, and the system ends that


def held(directory: Path) -> IO[str]:
    """Hold the directory until the file that is returned is closed. Raises ConfigError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (directory / FILE).open("a+")
    except OSError as error:
        raise ConfigError(
            f"--data-dir: {directory} cannot be used: {(error.strerror or '').lower()}\n"
            "Try: a directory that this user may write"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read(20).strip()
        lock.close()
        raise ConfigError(
            f"--data-dir: another console has {directory}"
            f"{f' (process {owner})' if owner else ''}\nTry: another --data-dir for this one"
        ) from None
    try:
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
    except OSError:  # a full disk: the lock holds without the number
        pass
    return lock
