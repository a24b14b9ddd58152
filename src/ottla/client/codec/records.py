"""The record codec, compiled where there is a compiled form: this file is the switch.

`OTTLA_PURE=1` asks for plain Python. `COMPILED` is True for the compiled form. All three modules
are of one form: the compiled ones use each other's fields in C.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import google_crc32c

FORM = 7  # what the modules must be (see batch_builder.py)

if TYPE_CHECKING or os.environ.get("OTTLA_PURE") == "1":
    from . import batch_builder as builder
    from . import column_writer as writer
    from . import record_reader as reader
else:
    try:
        from . import _batch_builder_c as builder

        if getattr(builder, "FORM", 0) != FORM:  # before the writer finds other fields in it
            raise ImportError("compiled from other source; try: make compile")
        from . import _column_writer_c as writer
        from . import _record_reader_c as reader

        if (writer.FORM, reader.FORM) != (FORM, FORM):
            raise ImportError("compiled from other source; try: make compile")
    except ImportError:
        from . import batch_builder as builder
        from . import column_writer as writer
        from . import record_reader as reader

COMPILED: bool = builder.COMPILED
HEAD_BYTES: int = builder.HEAD_BYTES
BatchBuilder = builder.BatchBuilder
carried = builder.carried
encoded_headers = builder.encoded_headers
murmur2 = builder.murmur2
ArrowBytes = writer.ArrowBytes
ArrowHeaders = writer.ArrowHeaders
ColumnWriter = writer.ColumnWriter
BytesColumn = reader.BytesColumn
Columns = reader.Columns
CorruptRecords = reader.CorruptRecords
checksum = reader.checksum
read_columns = reader.read_columns
read_consumer_records = reader.read_consumer_records

if COMPILED and google_crc32c.implementation == "c":
    reader.find_checksum(os.fsencode(google_crc32c._crc32c.__file__))
