"""DuckDB locked down: a database in memory that reaches no file, no network, no extension and no
variable of this process, and whose configuration nothing can change any more.

What a statement can see are the relations that we register, and these are records of topics that
the one who asks may read. So a statement that gets around every check of `statements.py` still
finds nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .work import Deadline, Problem, Stop, Stopped

MEMORY_MB = 512  # of one query
THREADS = 2
EXPRESSION_DEPTH_MAX = 250

# Set in this order before anything of a user's runs; the last one closes the lock.
SETTINGS: dict[str, object] = {
    "TimeZone": "UTC",
    "max_expression_depth": EXPRESSION_DEPTH_MAX,
    "max_temp_directory_size": "0KB",
    "temp_directory": "",
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "lock_configuration": True,
}
# Python variables as tables: the option's name in DuckDB 2, and before.
REPLACEMENT_OPTIONS = ("python_enable_replacements", "python_enable_replacement_scans")


def connect(memory_mb: int = MEMORY_MB, threads: int = THREADS) -> Any:
    """A new database, closed to the outside. Its connection is the caller's to close."""
    try:
        import duckdb
    except ImportError:
        raise Problem(
            "Conditions and SQL need DuckDB, which is not installed. Try: pip install "
            "'ottla[console]'"
        ) from None
    configuration: dict[str, Any] = {"memory_limit": f"{memory_mb}MB", "threads": threads}
    connection = duckdb.connect(":memory:", config=configuration)
    known = {
        name for (name,) in connection.execute("SELECT name FROM duckdb_settings()").fetchall()
    }
    settings = {name: False for name in REPLACEMENT_OPTIONS if name in known} | SETTINGS
    for name, value in settings.items():
        text = f"'{value}'" if isinstance(value, str) else str(value).lower()
        connection.execute(f"SET {name} = {text}")
    return connection


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def end_with(stop: Stop, connection: Any) -> None:
    """What the connection runs ends when the reader cancels."""
    import duckdb

    def interrupt() -> None:
        with suppress(duckdb.Error):  # closed already
            connection.interrupt()

    stop.on_stop(interrupt)


@contextmanager
def watched(connection: Any, stop: Stop, deadline: Deadline) -> Iterator[None]:
    """Statements that run inside end when the time is up (Problem), or when the reader cancels and
    `end_with` was called (Stopped); what DuckDB refuses becomes a Problem too."""
    import duckdb

    stop.check()
    timer = threading.Timer(deadline.left_ms / 1000, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.Error as error:
        stop.check()
        if deadline.passed:
            raise Problem(
                f"It took longer than {deadline.limit_ms / 1000:.0f} s: narrow it by time, offset "
                "or partition."
            ) from None
        if isinstance(error, duckdb.InterruptException):
            raise Stopped from None
        raise Problem(str(error).strip() or type(error).__name__) from None
    finally:
        timer.cancel()
