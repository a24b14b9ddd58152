"""The record loops, compiled where there is a compiled form: this file is the switch.

`OTTLA_PURE=1` asks for plain Python. `COMPILED` tells which it is. What the names do is told in
record_writer.py and record_reader.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

FORM = 3  # what the loops must be (see there)

if TYPE_CHECKING or os.environ.get("OTTLA_PURE") == "1":
    from . import record_reader as reader
    from . import record_writer as writer
else:
    try:
        from . import _record_reader_c as reader
        from . import _record_writer_c as writer

        if (getattr(reader, "FORM", 0), getattr(writer, "FORM", 0)) != (FORM, FORM):
            raise ImportError("compiled from other source; try: make compile")
    except ImportError:
        from . import record_reader as reader
        from . import record_writer as writer

COMPILED: bool = writer.COMPILED
BatchBuilder = writer.BatchBuilder
encoded_headers = writer.encoded_headers
HEAD_BYTES: int = writer.HEAD_BYTES
murmur2 = writer.murmur2
BytesColumn = reader.BytesColumn
Columns = reader.Columns
CorruptRecords = reader.CorruptRecords
read_columns = reader.read_columns
read_consumer_records = reader.read_consumer_records
