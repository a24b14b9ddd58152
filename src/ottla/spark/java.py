"""The check for a Java that Spark can run on, before Spark's own, with one sentence of advice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

VERSION_MIN = 17
ADVICE = (
    f"Spark needs Java {VERSION_MIN} or newer. Install it (Debian, Ubuntu: "
    "`apt-get install openjdk-17-jre-headless`; macOS: `brew install openjdk@17`) "
    "or point JAVA_HOME at one"
)


class JavaMissing(RuntimeError):
    """No Java, or one too old; the message has what to install."""


def find_java() -> str:
    """The path of the `java` that Spark will start: JAVA_HOME's, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(path)
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not installed"
        raise JavaMissing(f"{where}. {ADVICE}.")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = version_in(said.stderr + said.stdout)
    if version is None:
        # macOS has a /usr/bin/java that only prints where to get one.
        raise JavaMissing(f"{found} does not run. {ADVICE}.")
    if version < VERSION_MIN:
        raise JavaMissing(f"{found} is Java {version}. {ADVICE}.")
    return found


def version_in(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 of "17.0.15", 8 of "1.8.0_402"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
