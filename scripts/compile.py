"""Compile the record codec with Cython, beside its source; without a compiler, say so and go on.

    python scripts/compile.py            # build src/ottla/client/_record_codec_c.*.so
    python scripts/compile.py --check    # is it there, and made from today's source?

The install does the same through hatch_build.py. Nothing needs the result: records.py falls back
to the very same file as plain Python.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

ROOM = Path(__file__).parent.parent / "src" / "ottla" / "client"
SOURCE = ROOM / "record_codec.py"
DECLARATIONS = ROOM / "record_codec.pxd"
STAMP = ROOM / "_record_codec.stamp"
NAME = "_record_codec_c"


def source_hash() -> str:
    """What the compiled form must have been made from."""
    return hashlib.sha256(SOURCE.read_bytes() + DECLARATIONS.read_bytes()).hexdigest()


def build(target: Path = ROOM) -> Path:
    """The extension, built into `target`; raises whatever stands in the way."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "ottla" / "client" / f"{NAME}.py"
        copy.parent.mkdir(parents=True)
        for package in copy.parent, copy.parent.parent:  # or the declarations are not found
            (package / "__init__.py").touch()
        shutil.copy(SOURCE, copy)
        shutil.copy(DECLARATIONS, copy.with_suffix(".pxd"))
        extension = Extension(
            f"ottla.client.{NAME}", [str(copy)], extra_compile_args=["-O3", "-g0"]
        )
        made = cythonize([extension], build_dir=scratch, quiet=True)
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.build_lib = f"{scratch}/out"
        command.build_temp = f"{scratch}/temporary"
        command.ensure_finalized()
        command.run()
        (file,) = (Path(scratch) / "out" / "ottla" / "client").iterdir()
        # Beside it and then over it: a process that has the old one loaded keeps it.
        fresh = target / f"{file.name}.new"
        shutil.copy(file, fresh)
        built = fresh.replace(target / file.name)
    (target / STAMP.name).write_text(source_hash())
    return built


def main() -> int:
    if "--check" in sys.argv:
        fresh = STAMP.exists() and STAMP.read_text() == source_hash()
        print("compiled record codec:", "fresh" if fresh else "missing or out of date")
        return 0 if fresh else 1
    try:
        path = build()
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    except Exception as problem:
        print(f"the record codec stays plain Python: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
