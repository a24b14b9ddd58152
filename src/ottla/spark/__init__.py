"""Topics in Spark: a source, an exactly-once sink, and pipelines in one short file.

`spark.read.format("ottla")` finds the source by itself where the package is installed. The names
here are imported when they are first used, so that a module that only names a topic does not start
to load Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipelines.declaring import Pipeline as Pipeline
    from .pipelines.declaring import pipeline as pipeline
    from .pipelines.topics import PipelineError as PipelineError
    from .pipelines.topics import files as files
    from .pipelines.topics import table as table
    from .pipelines.topics import topic as topic
    from .sessions import session as session
    from .sink.writing import write as write
    from .source import OttlaDataSource as OttlaDataSource
    from .source import register as register
    from .source.listener import commit_progress as commit_progress
    from .source.offsets import lag as lag

# Name here → module.
LAZY: dict[str, str] = {
    "OttlaDataSource": ".source",
    "Pipeline": ".pipelines.declaring",
    "PipelineError": ".pipelines.topics",
    "commit_progress": ".source.listener",
    "files": ".pipelines.topics",
    "lag": ".source.offsets",
    "pipeline": ".pipelines.declaring",
    "register": ".source",
    "session": ".sessions",
    "table": ".pipelines.topics",
    "topic": ".pipelines.topics",
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
