"""Compile the loops that run once per record with Cython; without a compiler, say so and go on.

    python scripts/compile.py            # build client/codec/_batch_builder_c and the others
    python scripts/compile.py --check    # do they exist, built from the present source?

The folders are those of src/ottla; each extension lies beside its source. hatch_build.py runs the
same at install time. Nothing requires the result: client/codec/records.py falls back to
the same files as plain Python, client/network/bulk_receive.py does without receiving.pyx (Linux
only), log/offset_map.py has a plain form of offset_map.pyx.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
STAMP = SOURCE / "client" / "_record_codec.stamp"
# Of each extension its source and declarations, below SOURCE.
CODEC = "client/codec"
UNITS = [
    [f"{CODEC}/batch_builder.py", f"{CODEC}/batch_builder.pxd", f"{CODEC}/inline_functions.pxd"],
    [f"{CODEC}/column_writer.py"],
    [f"{CODEC}/record_reader.py", f"{CODEC}/record_reader.pxd"],
    ["log/offset_map.pyx"],
]
if sys.platform == "linux":
    UNITS.append(["client/network/receiving.pyx"])


def source_hash() -> str:
    """The hash of the sources that the compiled form must have been built from."""
    sources = [(SOURCE / name).read_bytes() for unit in UNITS for name in unit]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def build(target: Path = SOURCE) -> list[Path]:
    """Build the extensions into `target` and return their paths; raises what prevents it."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    with tempfile.TemporaryDirectory() as scratch:
        extensions = []
        for unit in UNITS:
            package = Path("ottla") / Path(unit[0]).parent
            folder = Path(scratch) / package
            folder.mkdir(parents=True, exist_ok=True)
            for name in package, *package.parents[:-1]:  # or the declarations are not found
                (Path(scratch) / name / "__init__.py").touch()
            copies = [folder / f"_{Path(name).stem}_c{Path(name).suffix}" for name in unit]
            for name, copy in zip(unit, copies, strict=True):
                shutil.copy(SOURCE / name, copy)
            extensions.append(
                Extension(
                    ".".join([*package.parts, copies[0].stem]),
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
        output = Path(scratch) / "out" / "ottla"
        for file in sorted(file for file in output.rglob("*") if file.is_file()):
            # Beside it and then over it: a process that has the old one loaded keeps it.
            final = target / file.relative_to(output)
            final.parent.mkdir(parents=True, exist_ok=True)
            fresh = final.with_name(f"{file.name}.new")
            shutil.copy(file, fresh)
            built.append(fresh.replace(final))
    (target / STAMP.relative_to(SOURCE)).write_text(source_hash())
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
        print(f"the loops stay plain Python: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
