"""Topics in Spark: a source, an exactly-once sink, and pipelines in one short file.

`spark.read.format("ottla")` finds the source by itself where the package is installed. The names
here are imported when they are first used, so that a module that only names a topic does not start
to load Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipelines import Pipeline as Pipeline
    from .pipelines import pipeline as pipeline
    from .sessions import session as session
    from .sink.writing import write as write
    from .source import OttlaDataSource as OttlaDataSource
    from .source import register as register
    from .source.listener import commit_progress as commit_progress
    from .source.offsets import lag as lag
    from .topics import PipelineError as PipelineError
    from .topics import files as files
    from .topics import table as table
    from .topics import topic as topic

# Name here → module.
LAZY: dict[str, str] = {
    "OttlaDataSource": ".source",
    "Pipeline": ".pipelines",
    "PipelineError": ".topics",
    "commit_progress": ".source.listener",
    "files": ".topics",
    "lag": ".source.offsets",
    "pipeline": ".pipelines",
    "register": ".source",
    "session": ".sessions",
    "table": ".topics",
    "topic": ".topics",
    "write": ".sink.writing",
}

__all__ = [
    "OttlaDataSource", "Pipeline", "PipelineError", "commit_progress", "files", "lag", "pipeline",
    "register", "session", "table", "topic", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(LAZY[name], __name__), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "pandas"):
            raise
        raise ModuleNotFoundError(
            f"ottla.spark needs {missing.name}, which is not installed. "
            "Try: pip install 'ottla[spark]'",
            name=missing.name,
        ) from None
