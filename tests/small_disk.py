"""A real file system of a few kilobytes, for tests of what happens when it is full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import needs


@contextmanager
def small_disk(where: Path, size_kb: int) -> Iterator[Path]:
    """Mounted at `where` (made for it); the test skips where this user may not mount one."""
    where.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        needs.missing("making a small file system needs root")
    size = f"size={size_kb}k"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", size, "tmpfs", str(where)], check=False)
    if made.returncode:
        needs.missing("this machine does not let us mount a small file system")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def remount(where: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(where)], check=True)
