"""Spark's errors as sentences with the pipeline's name.

Spark reports what is wrong as a condition (`UNRESOLVED_COLUMN.WITH_SUGGESTION`) and parameters;
those that a writer of pipelines meets are put in words here, the others keep Spark's first line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

    from .declaring import Pipeline

# The last line of a traceback: an error of Python, not of Java. Ours may have any name.
CAUSE_LINES = re.compile(
    r"^(?!(?:org|java|scala|py4j|net|io)\.)"
    r"(?:(?:\w+\.)*\w*(?:Error|Exception)|ottla(?:\.\w+)+): (?!Traceback)(.+)$"
)
STOPPED = re.compile(
    r"pipeline '[^']+' has no bad_records, and a record does not parse: "
    r"topic \S+, partition \d+, offset \d+: [^\n]+?(?=\s*(?:SQLSTATE: \w+)?\s*(?:\n|$))"
)
ADVICE = "Try: "
WATERMARK = (
    "{what} needs a watermark in mode {mode!r}: events.withWatermark(TIME_COLUMN, '1 minute') "
    "before it, and the time (or a window of it) among what it groups by"
)


def sentence(error: PySparkException, pipeline: Pipeline) -> str:
    """One sentence about what is wrong, and a line `Try: …` where the error has one."""
    text = str(error)
    stopped = STOPPED.search(text)
    if stopped:
        return (
            stopped[0].strip().rstrip("\"'")
            + ". Give it bad_records=topic(…), and such records go there"
        )
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    for start, words in WORDS.items():
        if condition.startswith(start):
            return f"pipeline {pipeline.name!r}: {words(parameters, pipeline, text)}"
    return f"pipeline {pipeline.name!r}: {root_cause(text)}"


def unknown_column(parameters: Mapping[str, str], pipeline: Pipeline, text: str) -> str:
    name = parameters.get("objectName") or parameters.get("fieldName") or "?"
    proposal = parameters.get("proposal") or parameters.get("fields") or ""
    there = f" (there are {proposal.replace('`', '')})" if proposal else ""
    return f"there is no column {name.replace('`', '')!r}{there}{place_in(text)}"


def output_mode(parameters: Mapping[str, str], pipeline: Pipeline, text: str) -> str:
    operation = parameters.get("operation") or first_line(text)
    if "watermark" in (operation + text).lower() and pipeline.mode == "append":
        return WATERMARK.format(what="an aggregation", mode=pipeline.mode)
    return f"mode {pipeline.mode!r} does not go with {operation}"


Words = Callable[[Mapping[str, str], "Pipeline", str], str]
WORDS: dict[str, Words] = {
    "UNRESOLVED_COLUMN": unknown_column,
    "FIELD_NOT_FOUND": unknown_column,
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": unknown_column,
    "STREAMING_OUTPUT_MODE": output_mode,
}


def place_in(text: str) -> str:
    """Where in the file the operation stands, if Spark reports it."""
    found = re.search(r"== DataFrame ==\n.*? was called from\n(.+?)\n", text, re.DOTALL)
    return f", called from {found[1].strip()}" if found else ""


def first_line(text: str) -> str:
    lines = [each.strip() for each in text.strip().splitlines() if each.strip()]
    line = re.sub(r"^\[[A-Z_0-9.]+\]\s*", "", lines[0]) if lines else "an error without words"
    return re.sub(r"\s*SQLSTATE: \w+$", "", line).rstrip(".;")


def root_cause(text: str) -> str:
    """The last error of ours or of Python in a long text, else its first line; with the line
    `Try: …` that follows it.

    The error of a query begins with the fact that it ended; the reason stands far below, in the
    traceback of a Python worker.
    """
    lines = text.splitlines()
    found = [
        (number, match[1].strip())
        for number, each in enumerate(lines)
        if (match := CAUSE_LINES.match(each))
    ]
    if "Traceback (most recent call last)" not in text or not found:
        return first_line(text)
    number, fact = found[-1]
    advice = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return "\n".join([fact.rstrip("."), *([advice] if advice.startswith(ADVICE) else [])])
