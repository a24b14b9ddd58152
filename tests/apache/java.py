"""Run Java: Kafka's own tools, and our single-file programs compiled once into the cache.

A JVM start costs a second or more, so a caller batches what it wants into one run.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.apache import jars

# The first compiler alone: a short run never earns back what the optimising one costs.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
TIMEOUT_S = 180


def run(main_class: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Standard output of one of Kafka's classes; raises with its error output when it fails."""
    return _run(["java", *QUICK_START, "-cp", jars.classpath(), main_class, *arguments], timeout_s)


def said(main_class: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """All that one of Kafka's classes says, however it ends."""
    command = ["java", *QUICK_START, "-cp", jars.classpath(), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    return done.stdout + done.stderr


def run_program(source: Path, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Compile a `.java` file (once per content) against Kafka's jars and run it."""
    return _run(program_command(source, *arguments), timeout_s)


def program_command(source: Path, *arguments: str) -> list[str]:
    """The command that runs a `.java` file, which is compiled first (once per content)."""
    path = f"{_compiled(source)}:{jars.classpath()}"
    return ["java", *QUICK_START, "-cp", path, source.stem, *arguments]


def run_json(source: Path, *arguments: str, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Run a program that prints one JSON object a line."""
    output = run_program(source, *arguments, timeout_s=timeout_s)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _compiled(source: Path) -> Path:
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    classes = jars.CACHE / "classes" / f"{source.stem}-{digest}"
    with jars.locked("javac"):
        if not (classes / f"{source.stem}.class").exists():
            classes.mkdir(parents=True, exist_ok=True)
            command = ["javac", "-nowarn", "-cp", jars.classpath(), "-d", str(classes)]
            _run([*command, str(source)], TIMEOUT_S)
    return classes


def _run(command: list[str], timeout_s: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        name = next((part for part in command if part.startswith(("org.", "kafka."))), command[-1])
        raise AssertionError(
            f"{name} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout
