"""The record codec, compiled where there is a compiled form: this file is the switch.

`OTTLA_PURE=1` asks for plain Python. `COMPILED` is True for the compiled form. The names are
documented in record_codec.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import google_crc32c

FORM = 6  # what the codec must be (see there)

if TYPE_CHECKING or os.environ.get("OTTLA_PURE") == "1":
    from . import record_codec as codec
else:
    try:
        from . import _record_codec_c as codec

        if getattr(codec, "FORM", 0) != FORM:
            raise ImportError("compiled from other source; try: make compile")
    except ImportError:
        from . import record_codec as codec

COMPILED: bool = codec.COMPILED
HEAD_BYTES: int = codec.HEAD_BYTES
ArrowBytes = codec.ArrowBytes
ArrowHeaders = codec.ArrowHeaders
BatchBuilder = codec.BatchBuilder
BytesColumn = codec.BytesColumn
Columns = codec.Columns
ColumnWriter = codec.ColumnWriter
CorruptRecords = codec.CorruptRecords
carried = codec.carried
checksum = codec.checksum
encoded_headers = codec.encoded_headers
murmur2 = codec.murmur2
read_columns = codec.read_columns
read_consumer_records = codec.read_consumer_records

if COMPILED and google_crc32c.implementation == "c":
    codec.find_checksum(os.fsencode(google_crc32c._crc32c.__file__))
