"""Compile the client's hot loops with Cython; without a compiler, say so and go on.

    python scripts/compile.py            # build codec/_record_codec_c, network/_receiving_c
    python scripts/compile.py --check    # do they exist, built from the present source?

The folders are those of src/ottla/client; each extension lies beside its source. hatch_build.py
runs the same at install time. Nothing requires the result: codec/records.py falls back to
record_codec.py as plain Python, network/bulk_receive.py does without receiving.pyx (Linux only).
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "ottla" / "client"
STAMP = CLIENT / "_record_codec.stamp"
# Of each extension its source and declarations, below CLIENT.
UNITS = [["codec/record_codec.py", "codec/record_codec.pxd"]]
if sys.platform == "linux":
    UNITS.append(["network/receiving.pyx"])


def source_hash() -> str:
    """The hash of the sources that the compiled form must have been built from."""
    sources = [(CLIENT / name).read_bytes() for unit in UNITS for name in unit]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def build(target: Path = CLIENT) -> list[Path]:
    """Build the extensions into `target` and return their paths; raises what prevents it."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    with tempfile.TemporaryDirectory() as scratch:
        client = Path(scratch) / "ottla" / "client"
        extensions = []
        for unit in UNITS:
            folder = client / Path(unit[0]).parent
            folder.mkdir(parents=True)
            for package in folder, client, client.parent:  # or the declarations are not found
                (package / "__init__.py").touch()
            copies = [folder / f"_{Path(name).stem}_c{Path(name).suffix}" for name in unit]
            for name, copy in zip(unit, copies, strict=True):
                shutil.copy(CLIENT / name, copy)
            extensions.append(
                Extension(
                    f"ottla.client.{folder.name}.{copies[0].stem}",
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
        output = Path(scratch) / "out" / "ottla" / "client"
        for file in output.glob("*/*"):
            # Beside it and then over it: a process that has the old one loaded keeps it.
            final = target / file.relative_to(output)
            fresh = final.with_name(f"{file.name}.new")
            shutil.copy(file, fresh)
            built.append(fresh.replace(final))
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
