"""Compile the record loops with Cython, beside their source; without a compiler, say so and go on.

    python scripts/compile.py            # build src/ottla/client/_record_*_c.*.so
    python scripts/compile.py --check    # are they there, and made from today's source?

The install does the same through hatch_build.py. Nothing needs the result: records.py falls back
to the very same files as plain Python.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

ROOM = Path(__file__).parent.parent / "src" / "ottla" / "client"
LOOPS = ("record_writer", "record_reader")
STAMP = ROOM / "_record_loops.stamp"


def source_hash() -> str:
    """What the compiled form must have been made from."""
    return hashlib.sha256(
        b"".join((ROOM / f"{name}.py").read_bytes() for name in LOOPS)
    ).hexdigest()


def build(target: Path = ROOM) -> list[Path]:
    """The extensions, built into `target`; raises whatever stands in the way."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    with tempfile.TemporaryDirectory() as scratch:
        extensions = []
        for name in LOOPS:
            copy = Path(scratch) / f"_{name}_c.py"
            shutil.copy(ROOM / f"{name}.py", copy)
            extensions.append(
                Extension(f"ottla.client._{name}_c", [str(copy)], extra_compile_args=["-O3", "-g0"])
            )
        made = cythonize(extensions, build_dir=scratch, quiet=True)
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.build_lib = f"{scratch}/out"
        command.build_temp = f"{scratch}/temporary"
        command.ensure_finalized()
        command.run()
        built = []
        for file in (Path(scratch) / "out" / "ottla" / "client").iterdir():
            # Beside it and then over it: a process that has the old one loaded keeps it.
            fresh = target / f"{file.name}.new"
            shutil.copy(file, fresh)
            fresh.replace(target / file.name)
            built.append(target / file.name)
    (target / STAMP.name).write_text(source_hash())
    return built


def main() -> int:
    if "--check" in sys.argv:
        fresh = STAMP.exists() and STAMP.read_text() == source_hash()
        print("compiled record loops:", "fresh" if fresh else "missing or out of date")
        return 0 if fresh else 1
    try:
        for path in build():
            print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    except Exception as problem:
        print(f"the record loops stay plain Python: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
