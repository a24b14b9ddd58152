"""Which decoder a source's options ask for."""

from __future__ import annotations

from collections.abc import Callable

from ..config.options import Options
from ..config.patterns import python_pattern
from ..matching.bounded import Bounded
from .blob import BlobDecoder
from .json_lines import JsonDecoder
from .lines import Decoder, LineDecoder, LongLines
from .multiline import MultiLineDecoder


def decoder_maker(options: Options) -> Callable[[int], Decoder]:
    """Makes decoders that begin at an offset."""
    kind = options.text("deserializer")
    bytes_max = options.number("deserializer.maxLineLength")
    policy = LongLines(options.text("deserializer.longLines"))

    first_line = pattern(options, "deserializer.firstLine")
    continuation = pattern(options, "deserializer.continuation")

    def lines(position: int) -> LineDecoder:
        return LineDecoder(position, bytes_max, policy)

    def multiline(position: int) -> MultiLineDecoder:
        return MultiLineDecoder(
            lines(position),
            first_line,
            continuation,
            options.number("deserializer.maxLines"),
            options.number("deserializer.flushTimeout") / 1000,
        )

    def documents(position: int) -> JsonDecoder:
        return JsonDecoder(
            lines(position),
            options.text_or_none("deserializer.bodyField"),
            options.names("deserializer.headerFields"),
        )

    def blobs(position: int) -> BlobDecoder:
        return BlobDecoder(position, options.number("deserializer.maxBlobLength"))

    makers: dict[str, Callable[[int], Decoder]] = {
        "line": lines,
        "multiline": multiline,
        "json": documents,
        "blob": blobs,
    }
    return makers[kind]


def pattern(options: Options, name: str) -> Bounded[bytes] | None:
    text = options.text_or_none(name)
    return None if text is None else Bounded(python_pattern(text).encode(), name)
