"""The pipelines in a file: `FILE` has all of them, `FILE:NAME` one.

A file is run as a module of its own. What it defines goes to the workers by value, because they
cannot import it; modules beside it can be imported, and must be where the workers are.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from .declaring import Pipeline, listed
from .topics import PipelineError

NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"
SPARK_PACKAGES = ("pyspark", "pyarrow", "pandas", "py4j")


class NeedsSession(PipelineError):
    """The file can only be read where a session is."""


def load(target: str) -> list[Pipeline]:
    """The pipelines that `FILE` or `FILE:NAME` names."""
    file, name = parted(target)
    found = pipelines_in(run_file(file))
    if not found:
        raise PipelineError(f"{file} has no pipeline: no function is decorated with @pipeline(…)")
    if name is None:
        return found
    chosen = [each for each in found if name in (each.name, each.function.__name__)]
    if not chosen:
        raise PipelineError(
            f"{file} has no pipeline {name!r} (there are {listed(each.name for each in found)})"
        )
    return chosen


def load_all(targets: tuple[str, ...]) -> list[Pipeline]:
    """The pipelines of several files; each name once, because it names the checkpoint."""
    found: dict[str, Pipeline] = {}
    for target in targets:
        for each in load(target):
            if each.name in found and found[each.name].file != each.file:
                raise PipelineError(
                    f"two pipelines are called {each.name!r}, in {found[each.name].file} "
                    f"and {each.file}"
                )
            found[each.name] = each
    return list(found.values())


def parted(target: str) -> tuple[Path, str | None]:
    """The file and the name behind the colon."""
    file, colon, name = target.rpartition(":")
    if colon and not Path(target).exists():
        return Path(file), name
    return Path(target), None


def run_file(file: Path) -> ModuleType:
    """The file as a module. An error in it is a sentence with its line."""
    path = file.resolve()
    if not path.is_file():
        raise PipelineError(f"there is no file {file}")
    name = "ottla_pipelines_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PipelineError as problem:
        raise PipelineError(f"{file}: {problem}") from problem
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in SPARK_PACKAGES:
            raise PipelineError(
                f"{file} needs {missing.name}, which is not installed: pip install 'ottla[spark]'"
            ) from missing
        raise PipelineError(f"{file}{line_of(missing, path)}: {missing}") from missing
    except Exception as error:
        if NO_SESSION in str(error) or needs_context(error):
            raise NeedsSession(
                f"{file}{line_of(error, path)} makes a column or a UDF while the file is read, "
                "which takes a Spark session: put it into the function"
            ) from error
        name_of = type(error).__name__
        raise PipelineError(f"{file}{line_of(error, path)}: {name_of}: {error}") from error
    send_by_value(module)
    return module


def needs_context(error: Exception) -> bool:
    """Did PySpark look for a session? Some of its functions only assert that there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, AssertionError) and bool(frames) and "pyspark" in frames[-1].filename


def line_of(error: Exception, path: Path) -> str:
    """`:12`, the last line of that file on the error's way."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f":{lines[-1]}" if lines else ""


def pipelines_in(module: ModuleType) -> list[Pipeline]:
    """In the order of the file; those that it only imports are not its own."""
    own = {
        id(each): each
        for each in vars(module).values()
        if isinstance(each, Pipeline) and each.function.__module__ == module.__name__
    }
    names: dict[str, Pipeline] = {}
    for each in own.values():
        if each.name in names:
            raise PipelineError(f"two pipelines are called {each.name!r} in {each.file}")
        names[each.name] = each
    return list(names.values())


def send_by_value(module: ModuleType) -> None:
    """Functions of this module go to the workers whole."""
    try:
        from pyspark.cloudpickle import register_pickle_by_value
    except ModuleNotFoundError:
        # A file may be listed where Spark is not installed.
        return
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
