"""Compile the client's hot loops with Cython; without a compiler, say so and go on.

    python scripts/compile.py            # build src/ottla/client/_record_codec_c.*.so, _receiving_c
    python scripts/compile.py --check    # are they there, and made from today's source?

The install does the same through hatch_build.py. Nothing needs the result: records.py falls back
to record_codec.py as plain Python, and ahead.py does without receiving.pyx (which is for Linux).
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

ROOM = Path(__file__).parent.parent / "src" / "ottla" / "client"
STAMP = ROOM / "_record_codec.stamp"
UNITS = [["record_codec.py", "record_codec.pxd"]]
if sys.platform == "linux":
    UNITS.append(["receiving.pyx"])


def source_hash() -> str:
    """What the compiled form must have been made from."""
    sources = [(ROOM / name).read_bytes() for unit in UNITS for name in unit]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def build(target: Path = ROOM) -> list[Path]:
    """The extensions, built into `target`; raises whatever stands in the way."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    with tempfile.TemporaryDirectory() as scratch:
        room = Path(scratch) / "ottla" / "client"
        room.mkdir(parents=True)
        for package in room, room.parent:  # or the declarations are not found
            (package / "__init__.py").touch()
        extensions = []
        for unit in UNITS:
            copies = [room / f"_{Path(name).stem}_c{Path(name).suffix}" for name in unit]
            for name, copy in zip(unit, copies, strict=True):
                shutil.copy(ROOM / name, copy)
            extensions.append(
                Extension(
                    f"ottla.client.{copies[0].stem}",
                    [str(copies[0])],
                    extra_compile_args=["-O3", "-g0"],
                )
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
            built.append(fresh.replace(target / file.name))
    (target / STAMP.name).write_text(source_hash())
    return built


def main() -> int:
    if "--check" in sys.argv:
        fresh = STAMP.exists() and STAMP.read_text() == source_hash()
        print("compiled loops:", "fresh" if fresh else "missing or out of date")
        return 0 if fresh else 1
    try:
        for path in build():
            print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    except Exception as problem:
        print(f"the hot loops stay plain Python: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
