"""The one place where a Spark session is made for pipelines: quiet, in UTC, with this Python.

On a local master everything stays on loopback. The JVM's stderr while it starts is passed on
without the lines that mean nothing to a reader; when it does not start, all of it is shown.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .home import quick_home
from .java import JavaMissing, find_java
from .owned_directory import OwnedDirectory
from .pipelines.topics import PipelineError
from .source.redaction import OPTIONS_REGEX, REDACTED

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
# Spark's own default is 200 shuffle partitions: 200 state stores for every aggregate of a laptop.
LOCAL_SHUFFLE_PARTITIONS = "4"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stopTimeout": "60s",
    OPTIONS_REGEX: REDACTED,
}
LOCAL_SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.shuffle.partitions": LOCAL_SHUFFLE_PARTITIONS,
}
# A failure comes to the caller as an exception, with the reason; Spark would log it as well, in a
# hundred lines.
LOG4J = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
QUIET = """
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
"""
# PySpark logs what it raises, as JSON with the whole plan.
TWICE_SAID = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Lines that the JVM and Spark's scripts print in every run.
MEANINGLESS = re.compile(
    r"WARNING: (Using incubator modules|A terminally deprecated|A restricted method"
    r"|sun\.misc\.Unsafe|Please consider reporting|Use --enable-native)"
    r"|Using Spark's default log4j profile|Setting default log level|To adjust logging level"
    r"|Picked up _?JAVA_"
)


def session(
    master: str = "local[*]",
    *,
    name: str = "ottla",
    settings: Mapping[str, str] | None = None,
    import_from: Iterable[str | Path] = (),
    verbose: bool = False,
) -> SparkSession:
    """A session with `settings` over ours. `import_from` are directories of a pipeline's modules.

    One that is there already is given back as it is, with the settings that can still be set.
    """
    need_installed()
    from pyspark.sql import SparkSession

    wanted = chosen(master, name, settings or {})
    existing = SparkSession.getActiveSession()
    if existing is None:
        launch(wanted, import_from, verbose)
    builder = SparkSession.builder.master(master).appName(name)
    for option, value in wanted.items():
        builder = builder.config(option, value)
    made = builder.getOrCreate()
    if existing is None and not verbose:
        quieten(made)
    return made


def need_installed() -> None:
    """Raise PipelineError with what to install, if something is missing."""
    try:
        import pyspark.sql  # noqa: F401
    except ModuleNotFoundError as missing:
        raise PipelineError(
            f"pipelines need {missing.name}, which is not installed: pip install 'ottla[spark]'"
        ) from None
    try:
        find_java()
    except JavaMissing as missing:
        raise PipelineError(str(missing).rstrip(".")) from None


def quieten(spark: SparkSession) -> None:
    """Silence loggers that repeat what is raised, and what only follows from the JVM's end."""
    for logger in TWICE_SAID:
        logging.getLogger(logger).disabled = True
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        # Its connection ends in the middle when the JVM goes, which socketserver would print.
        server.handle_error = lambda *_: None


def chosen(master: str, name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session: ours, then the caller's."""
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    ours = {"spark.master": master, "spark.app.name": name}
    return {**SETTINGS, **local, **settings, **ours}


def launch(settings: Mapping[str, str], import_from: Iterable[str | Path], verbose: bool) -> None:
    """Start the JVM in a session of its own, so that Ctrl-C is for us alone."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    owned = OwnedDirectory("ottla-session-")
    atexit.register(owned.remove)
    directory = owned.path
    prepare_environment(settings["spark.master"], import_from, directory)
    log_file = directory / "log4j2.properties"
    log_file.write_text(
        LOG4J.format(level="warn" if verbose else "error") + ("" if verbose else QUIET)
    )
    java = f"-Dlog4j2.configurationFile={log_file.as_uri()}"
    said = settings.get("spark.driver.extraJavaOptions", "")
    conf = SparkConf(loadDefaults=False)
    for option, value in settings.items():
        conf.set(option, value)
    conf.set("spark.driver.extraJavaOptions", f"{java} {said}".strip())
    if "spark.sql.warehouse.dir" not in settings:
        conf.set("spark.sql.warehouse.dir", str(directory / "warehouse"))
    reader, writer = os.pipe()
    words = Words(os.fdopen(reader, "rb"), sys.stderr, verbose)
    try:
        start: Callable[..., JavaGateway] = launch_gateway
        gateway = start(conf, {"start_new_session": True, "stderr": writer})
    except PySparkException:
        os.close(writer)
        words.join(5)
        raise PipelineError(f"Spark did not start: {words.all() or 'it said nothing'}") from None
    os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway)


def prepare_environment(master: str, import_from: Iterable[str | Path], directory: Path) -> None:
    """What the JVM and the Python workers inherit."""
    # Each Python of Spark's would compile what it imports anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # On a cluster Python may be at another place than here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Without it Spark warns of a host name that means loopback, and takes another address.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        os.environ.setdefault("SPARK_HOME", str(quick_home(directory)))
    paths = [str(each) for each in import_from]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])


class Words(threading.Thread):
    """Copies the JVM's stderr to `target`, without the lines that mean nothing."""

    def __init__(self, source: IO[bytes], target: IO[str], verbose: bool) -> None:
        super().__init__(name="ottla-spark-stderr", daemon=True)
        self._source = source
        self._target = target
        self._verbose = verbose
        self._lines: list[str] = []
        self.start()

    def run(self) -> None:
        for raw in self._source:
            text = raw.decode(errors="replace")
            self._lines = [*self._lines[-20:], text]
            if self._verbose or not MEANINGLESS.search(text):
                self._target.write(text)
                self._target.flush()

    def all(self) -> str:
        return " ".join("".join(self._lines).split())
