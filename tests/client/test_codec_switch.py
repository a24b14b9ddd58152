"""The record codec where something is missing: a compiler, Cython, an extension of today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITE = """
from ottla.client.codec import records
builder = records.BatchBuilder(100)
assert builder.append(0, b"k", b"v", [("h", None)]) > 0
print(records.COMPILED, bytes(builder.body()).hex())
"""
OLD = """
import sys, types, ottla.client.codec
old = types.ModuleType('old')
old.FORM = 1
sys.modules['ottla.client.codec._batch_builder_c'] = ottla.client.codec._batch_builder_c = old
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("", {"OTTLA_PURE": "1"}),
        ("import sys; sys.modules['ottla.client.codec._column_writer_c'] = None", {}),
        ("import sys; sys.modules['cython'] = None", {"OTTLA_PURE": "1"}),
        (OLD, {}),
    ],
    ids=["asked for", "not compiled", "no Cython", "compiled long ago"],
)
def test_the_plain_form_stands_in(before: str, environment: dict[str, str]) -> None:
    """Without a compiled form, or with an old one, the same source runs as Python."""
    found = run(f"{before}\n{WRITE}", **environment)
    assert found.returncode == 0, found.stderr
    compiled, written = found.stdout.split()
    assert compiled == "False"
    assert written == run(WRITE).stdout.split()[1]


def test_an_install_without_cython_goes_on() -> None:
    """The build says that the loops stay plain Python, and leaves all as it was."""
    before = modified_times()
    found = run(
        "import runpy, sys; sys.modules['Cython'] = None; sys.argv = ['compile.py']\n"
        "runpy.run_path('scripts/compile.py', run_name='__main__')"
    )
    assert found.returncode == 1
    assert "plain Python: No module named" in found.stderr
    assert modified_times() == before


def modified_times() -> dict[Path, int]:
    """When each built file of the codec was written."""
    found = (ROOT / "src/ottla/client").rglob("_*_c.*")
    return {path: path.stat().st_mtime_ns for path in found}
