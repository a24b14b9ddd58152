"""What a caller gives, looked at before it is used; an error says what is wrong, what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TIMESTAMP_MS_MAX = 2**63 - 1


def check_headers(headers: object) -> None:
    """A list of pairs of a name and bytes, or None for the latter."""
    if isinstance(headers, list | tuple):
        for each in headers:
            if not isinstance(each, list | tuple) or len(each) != 2:
                break
            name, content = each
            if not isinstance(name, str | bytes) or not (
                content is None or isinstance(content, bytes | bytearray | memoryview)
            ):
                break
        else:
            return
    raise TypeError(
        f"headers must be a list of pairs of a name and bytes (got {headers!r:.80})\n"
        "Try: headers=[('source', b'web')]"
    )


def check_timestamp(timestamp_ms: object) -> None:
    """Milliseconds since 1970."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise TypeError(
            f"timestamp_ms must be a whole number of milliseconds (got {timestamp_ms!r})\n"
            "Try: int(time.time() * 1000), or leave it out"
        )
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise ValueError(f"timestamp_ms must be 0 or more (got {timestamp_ms})")


def check_timeout(timeout_ms: object) -> None:
    """How long a poll may wait."""
    if not isinstance(timeout_ms, int | float) or isinstance(timeout_ms, bool):
        raise TypeError(f"timeout_ms must be a number of milliseconds (got {timeout_ms!r})")
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms must be 0 or more (got {timeout_ms})")


def check_properties(properties: object, who: str) -> None:
    """What may come first: a mapping, not an address."""
    if properties is not None and not isinstance(properties, Mapping):
        raise TypeError(
            f"{who} takes options by name, or a mapping of properties (got {properties!r})\n"
            f"Try: {who}(bootstrap_servers='localhost:9092')"
        )


def check_names(names: Iterable[object], who: str) -> None:
    """A list: a string would be taken apart letter by letter."""
    if isinstance(names, str | bytes):
        raise TypeError(f"{who} takes a list of names (got {names!r})\nTry: {who}([{names!r}])")
