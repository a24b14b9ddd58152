"""What a simulated cluster may keep of topics that were deleted."""

from __future__ import annotations

import pytest

from ottla.testing.simulation.churn import is_left

ID = b"i" * 16
UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("folder", "topic_id", "left"),
    [
        ("c0-1", ID, True),
        ("c0-1", None, True),
        ("c1-0", ID, False),
        ("t-0", ID, False),
        (f"c0-1.{UNIQUE}-delete", ID, False),
        (f"c0-1.{UNIQUE}-stray", ID, True),
        (f"c0-1.{UNIQUE}-stray", None, False),
    ],
)
def test_folders_that_should_be_gone(folder: str, topic_id: bytes | None, left: bool) -> None:
    """Those of topics that are no more, unless they are to be unlinked, or have no id."""
    assert is_left(folder, topic_id, {"c1", "t"}) == left
