"""Messages of a connection (RFC 6587): lines, or each with the count of its octets before it.

What a connection begins with is its framing. A message that is longer than allowed is given in
pieces, the first of them as incomplete; nothing is dropped.
"""

from __future__ import annotations

import re
from typing import NamedTuple

COUNT_PATTERN = re.compile(rb"([1-9]\d{0,7}) (?=<)")
COUNT_BEGUN = re.compile(rb"[1-9]\d{0,7} ?$")


class Message(NamedTuple):
    body: bytes
    is_cut: bool = False  # it is longer than allowed, or its end did not come


class Framing:
    """The messages of one connection; no more is kept than `message_bytes_max` and a block."""

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._rest = b""
        self._counts_octets: bool | None = None  # not known yet
        self._due = 0  # octets of a counted message that are to come

    def feed(self, block: bytes) -> list[Message]:
        self._rest += block
        found: list[Message] = []
        if self._counts_octets is None:
            if COUNT_BEGUN.match(self._rest):
                return []
            self._counts_octets = COUNT_PATTERN.match(self._rest) is not None
        if self._counts_octets:
            self._counted(found)
        if not self._counts_octets:
            self._lines(found)
        return found

    def end(self) -> list[Message]:
        """What came without its end."""
        rest, self._rest = self._rest, b""
        return [Message(rest, True)] if rest else []

    def _counted(self, found: list[Message]) -> None:
        data, at = self._rest, 0
        while at < len(data):
            if not self._due:
                if data[at] == 0x0A:  # some senders end each message with a line feed, too
                    at += 1
                    continue
                count = COUNT_PATTERN.match(data, at)
                if count is None:
                    if not COUNT_BEGUN.match(data, at):
                        self._counts_octets = False
                    break
                self._due = int(count[1])
                at = count.end()
            # A piece of a long message goes before the rest has come.
            while self._due > self._bytes_max and len(data) - at >= self._bytes_max:
                found.append(Message(data[at : at + self._bytes_max], True))
                at += self._bytes_max
                self._due -= self._bytes_max
            if self._due > len(data) - at:
                break
            self._add(found, data[at : at + self._due].removesuffix(b"\n"))
            at += self._due
            self._due = 0
        self._rest = data[at:]

    def _lines(self, found: list[Message]) -> None:
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._add(found, line.removesuffix(b"\r"))
        while len(self._rest) > self._bytes_max:
            found.append(Message(self._rest[: self._bytes_max], True))
            self._rest = self._rest[self._bytes_max :]

    def _add(self, found: list[Message], message: bytes) -> None:
        while len(message) > self._bytes_max:
            found.append(Message(message[: self._bytes_max], True))
            message = message[self._bytes_max :]
        if message:
            found.append(Message(message))
