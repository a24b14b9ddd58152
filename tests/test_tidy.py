"""The shape of the code: who may import whom, what stays above the seams, how long a file is.

The rules are data at the top; `violations_in` applies them to one module's text, so that the last
tests can feed it offending text and see it named.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
TESTS = Path(__file__).parent
ROOT = TESTS.parent
DOCUMENT_COLUMNS_MAX = 120
# Words that a newcomer would have to translate: Kafka's noun or the plain technical one instead.
METAPHORS = re.compile(
    r"\b(an open door|doors?|rooms?|houses?|desks?|seats?|offices?|lanes?|strangers?|hears?"
    r"|is told|are told|the way of)\b",
    re.IGNORECASE,
)
# A file beyond this gives its reason here, with the length it may reach: a class whose state has
# one owner stays in one file, rather than being cut into functions that change its fields.
FILE_LINES_MAX = 500
LONG_FILES: dict[str, tuple[int, str]] = {
    "client/codec/record_reader.py": (
        780,
        "one compiled unit: its functions call each other as C, which they cannot across modules",
    ),
    "client/consumer/consumer.py": (
        620,
        "Consumer is the interface of kafka-python's consumer: one method of it after the other",
    ),
    "cluster/controller.py": (
        640,
        "Controller owns the queue that all requests go through: one method for each request",
    ),
    "log/log.py": (860, "Log owns one partition's segments and offsets: all that changes them"),
    "replica/partition.py": (
        800,
        "Partition owns the high watermark of one log: all that moves it or depends on it",
    ),
    "seams/disk.py": (615, "the interface, and RealDisk and RealFile, which share descriptors"),
    "log/manager.py": (
        710,
        "LogManager owns the table of all logs: start, creation, deletion and stop change it",
    ),
}

# THINK ABOUT THE LAYERING BEFORE YOU CHANGE THIS TABLE. A package may always import itself.
# A value names a package (`log`) or one module of it (`cluster.image`).
SHARED = {"seams", "settings", "metrics"}
MAY_IMPORT: dict[str, set[str]] = {
    "wire": set(),
    "settings": set(),
    "metrics": set(),
    "tls": set(),
    "security": set(),
    "seams": {"tls", "wire"},
    "log": {"wire"} | SHARED,
    "replica": {"log", "wire"} | SHARED,
    "metadata_store": SHARED,
    "cluster": {"metadata_store", "security", "wire"} | SHARED,
    "coordinator": {"cluster.image", "replica.partition", "wire"} | SHARED,
    "broker": {"wire", "log", "replica", "metadata_store", "cluster", "coordinator", "security"}
    | SHARED,
    "server": {"broker.dispatch", "broker.login", "security.quotas", "tls.failure", "wire"}
    | SHARED,
    "client": {"security", "tls", "wire"},
    "aio": {"client"},
    "admin": {"client"},
    "errors": {"client"},
    "structs": {"client"},
    "spark": {"client"},
    "console": {"client", "settings.properties"},
    "agent": {"client", "settings.properties"},
    "mqtt": {"client"},
    "supervisor": {"metadata_store.shared"},
    "testing": {"client", "supervisor"},
    "cli": {"client"},
}
# Single files that may reach further than their package.
MAY_ALSO_IMPORT: dict[str, set[str]] = {
    "cli/server.py": {"broker", "cluster.state", "metadata_store", "log", "server", "wire"}
    | SHARED,
    "cli/agent.py": {"agent"},
    "cli/agent_files.py": {"agent"},
    "cli/agent_monitoring.py": {"agent", "server.listener", "server.metrics_http"} | SHARED,
    "cli/agent_run.py": {"agent", "seams.process"},
    "cli/agent_status.py": {"agent"},
    "cli/cluster_adopt.py": {"log", "metadata_store.shared", "supervisor"} | SHARED,
    "cli/cluster_disk.py": {"wire"},
    "cli/cluster_processes.py": {"supervisor"},
    "cli/cluster_restart.py": {"supervisor"},
    "cli/cluster_status.py": {"supervisor"},
    "cli/cluster_why.py": {"supervisor"},
    "cli/console.py": {"console"},
    "cli/control.py": {"broker.faults", "wire"},
    "cli/pipeline.py": {"spark"},
    "cli/pipeline_publishing.py": {"spark"},
    "cli/pipeline_run.py": {"spark"},
    "cli/pipeline_view.py": {"spark"},
    "cli/log.py": {"log", "wire"} | SHARED,
    "cli/secure.py": {"tls.authority"},
    "cli/server_exposure.py": {"server.listener"} | SHARED,
    "cli/server_limits.py": {"server.limits", "server.server"} | SHARED,
    "cli/server_options.py": {"server.listener"} | SHARED,
    "cli/server_sasl.py": {"broker.context", "broker.login", "broker.login_network", "security"}
    | {"broker.tokens", "cluster.image", "wire.exchange"}
    | SHARED,
    "cli/server_oauth.py": {"security", "tls"} | SHARED,
    "cli/server_tls.py": {"broker.context", "security", "tls"} | SHARED,
    "cli/server_workers.py": {"supervisor"} | SHARED,
    "cli/server_zookeeper.py": {"broker.drawn_id", "log.checkpoints", "metadata_store"} | SHARED,
    "cli/start_failure.py": {"metadata_store.tree"},
    "cli/storage.py": {"log"} | SHARED,
    "cli/storage_scram.py": {"cluster.client_nodes", "cluster.nodes", "metadata_store", "security"}
    | SHARED,
    "cli/simulate.py": {"testing.simulation"},
    "cli/zookeeper_brokers.py": {"settings.zookeeper"},
}
# Folders of which all files may: whole brokers are put together here.
FOLDERS_MAY_ALSO_IMPORT: dict[str, set[str]] = {
    "testing/simulation/": {"broker", "cluster", "log", "metadata_store", "replica", "server"}
    | {"wire"}
    | SHARED,
}
# The package's own version may be read anywhere.
FREE_NAMES = {"__version__"}

# Below the seams the outside world is handed in (idea 4 of the design): no clock, no chance, no
# file, no socket, no thread of one's own, so that the same code runs in a simulation.
BELOW_THE_SEAMS = {
    "wire", "log", "replica", "metadata_store", "cluster", "coordinator", "broker", "server",
}  # fmt: skip
FORBIDDEN_MODULES = {
    "time", "random", "uuid", "socket", "mmap", "sqlite3", "threading", "subprocess", "secrets",
    "multiprocessing", "shutil", "tempfile", "pathlib", "io", "select", "selectors", "fcntl",
    "glob",
}  # fmt: skip
OS_ALLOWED = {"os.PathLike", "os.fspath", "os.path", "os.strerror"}
FORBIDDEN_CALLS = {"open"}
# Packages that use a partition's log through `replica.partition.Partition` only.
ABOVE_THE_LOG = {"coordinator", "broker", "server"}
LOGGERS = {"log", "logger", "math"}
OS_PATH_PURE = {"join", "basename", "dirname", "split", "splitext", "normpath", "isabs", "sep"}


def package_of(path: str) -> str:
    """The package a file belongs to: its first folder, or its own name at the top."""
    first = path.split("/")[0]
    return first.removesuffix(".py")


def ottla_imports(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """Every import of our own, as a dotted name below `ottla`."""
    package = ["ottla", *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ottla":
                    yield node.lineno, alias.name.removeprefix("ottla").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                module = ".".join([*base, *([node.module] if node.module else [])])
            else:
                module = node.module or ""
            if module.split(".")[0] != "ottla":
                continue
            below = module.removeprefix("ottla").lstrip(".")
            for alias in node.names:
                if below == "" and alias.name in FREE_NAMES:
                    continue
                yield node.lineno, f"{below}.{alias.name}".lstrip(".")


def layering_violations(tree: ast.Module, path: str) -> Iterator[str]:
    package = package_of(path)
    if path in ("__init__.py", "__main__.py"):
        return
    if package not in MAY_IMPORT:
        yield f"{path}: package {package!r} is not in the layering table"
        return
    allowed = MAY_IMPORT[package] | MAY_ALSO_IMPORT.get(path, set()) | {package}
    for folder, more in FOLDERS_MAY_ALSO_IMPORT.items():
        if path.startswith(folder):
            allowed |= more
    for line, name in ottla_imports(tree, path):
        if not any(name == entry or name.startswith(entry + ".") for entry in allowed):
            yield f"{path}:{line}: {package} may not import ottla.{name}"


def type_checking_lines(tree: ast.Module) -> set[int]:
    """Lines under `if TYPE_CHECKING:`: names for the type checker, nothing that runs."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            for child in node.body:
                lines.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return lines


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def seam_violations(tree: ast.Module, path: str) -> Iterator[str]:
    if package_of(path) not in BELOW_THE_SEAMS or path.endswith("__main__.py"):
        return
    names_only = type_checking_lines(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if line in names_only:
            continue
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
            if node.module == "os":
                yield f"{path}:{line}: from os import …; say os.… so that it can be seen"
        for module in modules:
            if module.split(".")[0] in FORBIDDEN_MODULES:
                yield f"{path}:{line}: {module} is above the seams; take it as an argument"
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in FORBIDDEN_CALLS:
                yield f"{path}:{line}: {name}() is above the seams; use the disk seam"
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name.startswith("os.path."):
                if name.split(".")[2] not in OS_PATH_PURE:
                    yield f"{path}:{line}: {name} asks the file system; use the disk seam"
            elif name.startswith("os.") and name not in OS_ALLOWED:
                yield f"{path}:{line}: {name} is above the seams; use a seam"


def reach_violations(tree: ast.Module, path: str) -> Iterator[str]:
    """`partition.log` above `replica/`: a partition decides what may be read and written."""
    if package_of(path) not in ABOVE_THE_LOG:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "log":
            owner = dotted(node.value)
            if owner.split(".")[-1] not in LOGGERS:
                yield f"{path}:{node.lineno}: {owner}.log; ask the partition, not its log"


def length_violations(text: str, path: str) -> Iterator[str]:
    lines = text.count("\n")
    most, _ = LONG_FILES.get(path, (FILE_LINES_MAX, ""))
    if lines > most:
        yield f"{path}: {lines} lines, at most {most}; split it by purpose, or say why not"


def violations_in(text: str, path: str) -> list[str]:
    """All that is wrong with one module of src/ottla, given its text and its path there."""
    tree = ast.parse(text)
    return [
        *layering_violations(tree, path),
        *seam_violations(tree, path),
        *reach_violations(tree, path),
        *length_violations(text, path),
    ]


def modules() -> list[str]:
    return sorted(str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", modules())
def test_module_keeps_the_rules(path: str) -> None:
    """Each module imports only what its package may, keeps below the seams, and is short."""
    found = violations_in((SOURCE / path).read_text(), path)
    assert not found, "\n".join(found)


def test_long_files_give_a_reason() -> None:
    """Each file that may be longer is, and says why it is not split."""
    lengths = {path: (SOURCE / path).read_text().count("\n") for path in LONG_FILES}
    assert not [path for path, lines in lengths.items() if lines <= FILE_LINES_MAX]
    assert not [path for path, (_, reason) in LONG_FILES.items() if len(reason.split()) < 6]


def test_tests_are_short_files_too() -> None:
    """No test file is longer than a source file may be."""
    found = [
        line
        for file in TESTS.rglob("*.py")
        for line in length_violations(file.read_text(), str(file.relative_to(TESTS)))
    ]
    assert not found, "\n".join(found)


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a document that are neither code nor part of a table."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("|"):
            yield number, line


def test_documents_end_their_lines() -> None:
    """No line of prose in a document is longer than DOCUMENT_COLUMNS_MAX."""
    long = [
        f"{file.relative_to(ROOT)}:{number}: {len(line)} columns"
        for file in documents()
        for number, line in prose(file.read_text())
        if len(line) > DOCUMENT_COLUMNS_MAX
    ]
    assert not long, "\n".join(long)


def words_of(line: str) -> str:
    """The line; the name of a test as a sentence."""
    return line.replace("_", " ") if "def test_" in line else line


def test_no_metaphors() -> None:
    """Names, comments, docstrings and documents say what is meant (METAPHORS)."""
    sources = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyx")]
    tests = [*TESTS.rglob("*.py"), *TESTS.rglob("*.java")]
    tests.remove(Path(__file__))
    found = [
        f"{file.relative_to(ROOT)}:{number}: {word.group()}"
        for file in [*sources, *tests, *documents()]
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for word in METAPHORS.finditer(words_of(line))
    ]
    assert not found, "\n".join(found)


def test_every_test_states_its_claim() -> None:
    """Each test function has a docstring: the claim it proves."""
    silent = [
        f"{file.relative_to(TESTS)}:{node.lineno}: {node.name}"
        for file in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_no_test_measures_cpu_time() -> None:
    """Tests count work (`tests/work.py`); seconds of CPU are for the benchmarks."""
    clocks = re.compile(r"\b(process_time|thread_time|perf_counter)(_ns)?\b")
    found = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if file.name != "test_tidy.py" and clocks.search(file.read_text())
    ]
    assert not found, found


# They take a time and assert no upper bound of it.
TAKES_A_TIME = {
    "apache/kafka.py": "says how long Apache Kafka took to start",
    "differential/cases/connections.py": "an answer that is due later must not come before",
}


def test_no_test_measures_wall_time() -> None:
    """A test waits for an event and gives up late (`tests/waiting.py`): a busy machine is slow, not
    wrong."""
    duration = re.compile(r"\btime\.(monotonic|time)(_ns)?\(\) - (began|start\w*|before)\b")
    found = [
        path
        for file in TESTS.rglob("*.py")
        if (path := str(file.relative_to(TESTS))) not in TAKES_A_TIME
        and duration.search(file.read_text())
    ]
    assert not found, found


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("wire/header.py", "from ottla.log import log", "wire may not import ottla.log.log"),
        ("wire/header.py", "from ..broker import dispatch", "wire may not import ottla.broker"),
        ("server/listener.py", "import ottla.broker.broker", "server may not import"),
        ("client/producer.py", "from ottla import broker", "client may not import ottla.broker"),
        ("cli/topics.py", "from ottla.server import listener", "cli may not import ottla.server"),
        ("attic/x.py", "", "not in the layering table"),
        ("log/log.py", "import time", "time is above the seams"),
        ("log/log.py", "from random import choice", "random is above the seams"),
        ("log/log.py", "f = open('x')", "open() is above the seams"),
        ("log/log.py", "import os\nos.unlink('x')", "os.unlink is above the seams"),
        ("log/log.py", "import os\nos.path.exists('x')", "os.path.exists asks the file system"),
        ("log/log.py", "from os import unlink", "from os import"),
        ("broker/broker.py", "def f():\n    import threading", "threading is above the seams"),
        ("cluster/image.py", "import uuid", "uuid is above the seams"),
        ("broker/reading.py", "found = partition.log.read(0)", "ask the partition, not its log"),
        ("wire/varint.py", "x = 1\n" * 501, "501 lines"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(path: str, text: str, complaint: str) -> None:
    """The checks above can fail: each kind of offence is found and named with its place."""
    found = violations_in(text, path)
    assert any(complaint in line and line.startswith(path) for line in found), found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/header.py", "import struct\nfrom ottla.wire import varint"),
        ("server/connection.py", "from ottla.broker.dispatch import Dispatcher"),
        ("cli/server.py", "from ottla.broker.broker import Broker"),
        ("seams/disk.py", "import os\nos.unlink('x')"),
        ("log/segment.py", "import os\nos.path.join('a', 'b')"),
        ("metadata_store/local.py", "if TYPE_CHECKING:\n    import sqlite3"),
        ("cli/main.py", "from ottla import __version__"),
        ("broker/markers.py", "log.log(10, 'text')"),
        ("replica/group_commit.py", "partition.log.begin_flush()"),
    ],
)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    """The checks above do not cry wolf."""
    assert violations_in(text, path) == []
