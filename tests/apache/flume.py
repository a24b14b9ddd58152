"""Apache Flume's jars from Maven, as Apache Kafka's: copied once into `.cache/`.

`OTTLA_FLUME` names another folder with them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.apache import jars

VERSION = "1.11.0"
ARTIFACTS = (
    ("org.apache.flume", "flume-ng-node", VERSION),
    ("org.apache.flume.flume-ng-sources", "flume-taildir-source", VERSION),
    ("org.apache.flume.flume-ng-sources", "flume-kafka-source", VERSION),
    ("org.apache.flume.flume-ng-sinks", "flume-ng-kafka-sink", VERSION),
    ("org.apache.flume.flume-ng-channels", "flume-file-channel", VERSION),
    ("org.apache.flume.flume-ng-channels", "flume-kafka-channel", VERSION),
)
CACHE = jars.CACHE.parent / f"flume-{VERSION}"
MAIN = "org.apache.flume.node.Application"


def folder() -> Path:
    """Where the jars are, or would be."""
    named = os.environ.get("OTTLA_FLUME")
    return Path(named) if named else CACHE / "libs"


def present() -> bool:
    """Whether a whole set of jars is here."""
    return all((folder() / f"{name}-{version}.jar").exists() for _, name, version in ARTIFACTS)


def fetch() -> Path:
    """Copy the jars through Maven unless they are here; safe when several processes try at once."""
    with jars.locked("fetch-flume"):
        if not present():
            shutil.rmtree(CACHE, ignore_errors=True)  # of a shorter list
            CACHE.mkdir(parents=True)
            jars.copy(ARTIFACTS, CACHE / "libs")
        return folder()


def classpath() -> str:
    """All jars, in a fixed order."""
    return ":".join(str(jar) for jar in sorted(folder().glob("*.jar")))
