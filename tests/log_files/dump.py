"""Kafka's DumpLogSegments over many files in one JVM, and what counts as a complaint of it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.apache import java

PROGRAM = Path(__file__).with_name("DumpAll.java")
ALWAYS_SAID = re.compile(r"Non-consecutive offsets in \S*?/0*(\d+)\.log\n  -1 is followed by \1\n")
COMPLAINTS = (
    "mismatch",
    "non-consecutive",
    "followed by",
    "out of order",
    "indexed offset",
    "not found",
    "isvalid: false",
    "error",
    "exception",
    "trailing",
    "corrupt",
    "fail",
)


def dump(*groups: list[str]) -> list[str]:
    """The output of each group of arguments."""
    arguments = [word for group in groups for word in (*group, "--next")][:-1]
    output = java.run_program(PROGRAM, *arguments)
    parts = output.split("### end\n")[:-1]
    assert len(parts) == len(groups), output[-2000:]
    return parts


def files(folder: Path, suffix: str) -> str:
    """All files of a kind in a partition's folder, as the tool wants them."""
    found = sorted(folder.glob(f"*{suffix}"))
    assert found, f"no {suffix} in {folder}"
    return ",".join(map(str, found))


def complaints(output: str) -> list[str]:
    """Every line in which the tool found something wrong.

    For every segment but a log's first it says that "-1 is followed by" the segment's own first
    offset, whoever wrote it; that alone is not counted.
    """
    output = ALWAYS_SAID.sub("", output)
    return [
        line
        for line in output.splitlines()
        if not line.startswith("###") and any(word in line.lower() for word in COMPLAINTS)
    ]
