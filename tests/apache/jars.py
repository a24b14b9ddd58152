"""Where Apache Kafka's jars live, and how they come here.

They are copied once by Maven into `.cache/` (never into git); after that they are only read.
`OTTLA_APACHE_KAFKA` names another folder with the jars, for machines without Maven.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

KAFKA_VERSION = "4.3.1"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / f"apache-kafka-{KAFKA_VERSION}"
FETCH_TIMEOUT_S = 600

ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla.tests</groupId><artifactId>apache-kafka</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""


class JarsMissing(Exception):
    """The jars are not here; the message says what to do."""


def folder() -> Path:
    """Where the jars are, or would be."""
    named = os.environ.get("OTTLA_APACHE_KAFKA")
    return Path(named) if named else CACHE / "libs"


def present() -> bool:
    """Whether a whole set of jars is here (Maven's copy is moved into place in one step)."""
    return any(folder().glob(f"kafka_2.13-{KAFKA_VERSION}.jar"))


def classpath() -> str:
    """All jars in a fixed order: a class-data archive is only valid for one exact class path."""
    if not present():
        raise JarsMissing(
            f"Apache Kafka {KAFKA_VERSION}'s jars are missing; try: python -m tests.apache.fetch"
        )
    return ":".join(str(jar) for jar in sorted(folder().glob("*.jar")))


def fetch() -> Path:
    """Copy the jars through Maven unless they are here; safe when several processes try at once."""
    with locked("fetch"):
        if present():
            return folder()
        copy(ARTIFACTS, CACHE / "libs")
        return folder()


def copy(artifacts: tuple[tuple[str, str, str], ...], target: Path, *arguments: str) -> None:
    """Copy artifacts and what they need into a new folder, all or none, through Maven."""
    if shutil.which("mvn") is None:
        raise JarsMissing("Maven (`mvn`) is not installed, so the jars cannot be fetched")
    work = target.parent / f"{target.name}.fetching"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    (work / "pom.xml").write_text(POM.format(dependencies=dependencies))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
    done = subprocess.run(
        [*command, *arguments], cwd=work, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
    )
    if done.returncode != 0:
        raise JarsMissing(f"Maven could not fetch the jars: {done.stdout[-2000:]}")
    (work / "libs").rename(target)
    shutil.rmtree(work)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time (pytest-xdist runs several)."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
