"""What a certificate says of itself: its subject as Java writes it, and until when it holds.

Reads DER as far as that needs, so that a broker with PEM stores does without further packages.
OpenSSL has checked the certificates that connections show; what cannot be read is a ValueError.
"""

from __future__ import annotations

import binascii
import datetime
import re
from collections.abc import Iterator
from typing import NamedTuple

# The attributes that RFC 2253 has a word for; others are their numbers.
WORDS = {
    "2.5.4.3": "CN", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU",
    "2.5.4.6": "C", "2.5.4.9": "STREET", "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
ESCAPED = ',=+<>#;"\\'
# Tags of strings, and how their bytes are read.
STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii"}
_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----",
    re.DOTALL,
)


class Element(NamedTuple):
    tag: int
    content: memoryview
    whole: memoryview  # with tag and length

    def parts(self) -> Iterator[Element]:
        rest = self.content
        while rest:
            element, rest = read(rest)
            yield element


class Certificate(NamedTuple):
    subject: str  # as Java's X500Principal.getName(): RFC 2253, the last part first
    begins: datetime.datetime
    ends: datetime.datetime


def read(data: memoryview) -> tuple[Element, memoryview]:
    """The first element, and what follows it."""
    if len(data) < 2:
        raise ValueError("the certificate ends too early")
    tag, size, start = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        start += count
        size = int.from_bytes(data[2:start], "big")
        if not 1 <= count <= 4:
            raise ValueError("a length in the certificate is not one of DER")
    if start + size > len(data):
        raise ValueError("the certificate ends too early")
    return Element(tag, data[start : start + size], data[: start + size]), data[start + size :]


def parse(der: bytes) -> Certificate:
    certificate, _ = read(memoryview(der))
    signed = next(certificate.parts(), None)
    fields = [] if signed is None else list(signed.parts())
    if fields and fields[0].tag == 0xA0:  # the version, which the oldest leave out
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate lacks some of its parts")
    _, _, _, validity, subject, *_ = fields
    begins, ends = validity.parts()
    return Certificate(name_of(subject), time_of(begins), time_of(ends))


def parse_pem(pem: bytes) -> list[Certificate]:
    """All certificates in the text."""
    found = []
    for match in _PEM.finditer(pem):
        try:
            found.append(parse(binascii.a2b_base64(match[1])))
        except binascii.Error as error:
            raise ValueError(f"a certificate is not base64: {error}") from None
    return found


def time_of(element: Element) -> datetime.datetime:
    """UTCTime or GeneralizedTime."""
    text = bytes(element.content).decode("ascii")
    form = "%y%m%d%H%M%SZ" if element.tag == 0x17 else "%Y%m%d%H%M%SZ"
    moment = datetime.datetime.strptime(text, form)
    if element.tag == 0x17 and moment.year >= 2050:  # Python's pivot is 1969
        moment = moment.replace(year=moment.year - 100)
    return moment.replace(tzinfo=datetime.UTC)


def name_of(element: Element) -> str:
    parts = ["+".join(map(attribute, relative.parts())) for relative in element.parts()]
    return ",".join(reversed(parts))


def attribute(element: Element) -> str:
    kind, value = element.parts()
    number = oid(kind.content)
    word = WORDS.get(number)
    encoding = STRINGS.get(value.tag)
    if word is None or encoding is None:
        return f"{word or number}=#{bytes(value.whole).hex()}"
    return f"{word}={escaped(bytes(value.content).decode(encoding, 'replace'))}"


def escaped(text: str) -> str:
    made = "".join(
        "\\00" if char == "\0" else f"\\{char}" if char in ESCAPED else char for char in text
    )
    lead = len(made) - len(made.lstrip(" \r"))
    end = len(made.rstrip(" \r"))
    return "".join(
        f"\\{char}" if place < lead or place >= end else char for place, char in enumerate(made)
    )


def oid(content: memoryview) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("an attribute of the certificate has no type")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
