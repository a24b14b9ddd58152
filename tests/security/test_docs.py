"""docs/security.md: the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`((?:tests|benchmarks)/[a-z_/]+\.py|test_[a-z_]+\.py)`")


def test_what_is_named_is_there() -> None:
    """A threat without a test that shows what stops it would be a claim; a file without a folder
    lies in that of the one before it."""
    text = (ROOT / "docs" / "security.md").read_text()
    table = text[text.index("## Who could try what") : text.index("**Not covered.**")]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        folder = Path()
        names = NAMED.findall(row)
        assert names, row
        for name in names:
            path = ROOT / name if "/" in name else folder / name
            assert path.exists(), path
            folder = path.parent
