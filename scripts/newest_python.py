"""Print the path of the newest Python on this machine that Ottla may run on, or nothing.

Looked for on the PATH and among pyenv's versions; the Python that runs this script counts too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

NAME = re.compile(r"python3\.(1[1-9])$")
ASK = "import sys; print(*sys.version_info[:3], sys.version_info.releaselevel)"


def candidates() -> set[str]:
    """Files that are called like an interpreter; some may be shims that lead nowhere."""
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += pyenv.glob("versions/*/bin")
    found = {
        str(file)
        for folder in folders
        if folder.is_dir()
        for file in folder.glob("python3.*")
        if NAME.search(file.name)
    }
    return found | {sys.executable}


def version_of(path: str) -> tuple[int, ...] | None:
    """What the interpreter says of itself; None for a pre-release or one that does not run."""
    try:
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if done.returncode or len(words) != 4 or words[3] != "final":
        return None
    return tuple(map(int, words[:3]))


def main() -> None:
    versions = {path: version_of(path) for path in sorted(candidates())}
    known = {path: version for path, version in versions.items() if version is not None}
    print(max(known, key=lambda path: known[path]))


if __name__ == "__main__":
    main()
