"""Which decoder a source's options ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..config.options import Options
from .lines import Decoder, LineDecoder, LongLines


def decoder_maker(options: Options) -> Callable[[int], Decoder]:
    """Makes decoders that begin at an offset."""
    return partial(
        LineDecoder,
        line_bytes_max=options.number("deserializer.maxLineLength"),
        policy=LongLines(options.text("deserializer.longLines")),
    )
