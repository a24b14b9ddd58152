"""The few exceptions that the wire raises, and the type of what it reads.

Whatever a peer sends, reading it ends in a value or in a `MalformedMessage`; nothing else escapes.
What we cannot write is our own fault and is called `UnwritableMessage`.
"""

from __future__ import annotations

__all__ = ["Buffer", "MalformedMessage", "UnsupportedVersion", "UnwritableMessage", "WireError"]

Buffer = bytes | bytearray | memoryview


class WireError(Exception):
    """Any trouble between bytes and messages."""


class MalformedMessage(WireError):
    """The peer's fault: the bytes are not what their place promises."""


class UnsupportedVersion(WireError):
    """A message was asked for in a version it does not have."""


class UnwritableMessage(WireError):
    """Our fault: a field holds what its type cannot carry."""
