"""The source: topics as DataFrames, batch and stream.

`data_source.py` is what Spark creates first; `batch_reader.py` and `stream_reader.py` plan on the
driver, `reading.py` reads in the tasks. `options.py`, `offsets.py`, `planning.py` and `filters.py`
decide without I/O, `offset_lookup.py` sends requests to the brokers, `listener.py` and
`group_commits.py` commit progress to a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data_source import OttlaDataSource as OttlaDataSource
    from .data_source import register as register

__all__ = ["OttlaDataSource", "register"]


def __getattr__(name: str) -> Any:
    # The modules here that need no Spark stay free of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import data_source

    return getattr(data_source, name)
