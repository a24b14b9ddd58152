"""Java's regular expressions, as Flume's files have them, in Python's syntax.

They agree but for names of groups, `\\p{…}` classes, `\\Q…\\E`, `\\z`, `\\Z`, `\\h` and `\\R`; what
has no counterpart (a class within a class, `&&`) stays as it is.
"""

from __future__ import annotations

import re

# POSIX and Java classes of characters, all of them US-ASCII as in Java.
CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0B\f\r",
}
HORIZONTAL = r" \t\xA0"
TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|\\(?P<sign>[pP])\{(?:Is)?(?P<of>\w+)\}"
    r"|\\k<(?P<again>\w+)>"
    r"|\(\?<(?P<group>[a-zA-Z]\w*)>"
    r"|(?P<escape>\\.)"
    r"|(?P<bracket>[\[\]])",
    re.DOTALL,
)
ESCAPES = {r"\z": r"\Z", r"\Z": r"(?=\n?\Z)", r"\R": r"(?:\r\n|[\n-\r])", r"\e": r"\x1B"}


# What `re.compile` raises: also for a number of repetitions, or a nesting, that is too large.
BAD_PATTERN = (re.error, OverflowError, RecursionError)


def python_pattern(text: str) -> str:
    """The pattern for Python's `re`. It may still not compile."""
    inside = False  # a class of characters

    def replaced(match: re.Match[str]) -> str:
        nonlocal inside
        if match["quoted"] is not None:
            return re.escape(match["quoted"])
        if match["of"] in CLASSES:
            negated = match["sign"] == "P"
            if inside:
                return match[0] if negated else CLASSES[match["of"]]
            return f"[{'^' if negated else ''}{CLASSES[match['of']]}]"
        if match["again"]:
            return f"(?P={match['again']})"
        if match["group"]:
            return f"(?P<{match['group']}>"
        if match["bracket"]:
            inside = match["bracket"] == "["
            return match[0]
        escape = match["escape"] or match[0]
        if escape == r"\h":
            return HORIZONTAL if inside else f"[{HORIZONTAL}]"
        return escape if inside else ESCAPES.get(escape, escape)

    return TOKEN.sub(replaced, text)
