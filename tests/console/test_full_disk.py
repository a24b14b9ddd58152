"""A disk without space: people look on, nothing is half changed, and all goes on when there is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.console.history.kept import KeptHistory
from ottla.console.series import Measure, Sample, SeriesKey
from tests.small_disk import small_disk

from .people import ADMIN_PASSWORD, People, cheap_passwords, csrf, log_in, post
from .pictures import picture

DISK_KB = 2000
KEYS = [SeriesKey("main", Measure.TOPIC_SIZE, f"topic-{each}") for each in range(500)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_KB) as made:
        yield made


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    with (disk / "other").open("wb", buffering=0) as other:
        with suppress(OSError):
            while True:
                other.write(b"x" * 4096)
        yield
        other.truncate(0)


def test_people_look_on_and_changes_say_why_not(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Signed in, one sees all pages; a login or a new user is refused in words, a refused change
    is in the log if it cannot be in the audit log; with space all of it works."""
    with cheap_passwords():
        people = People(disk / "console", picture())
        admin, late = people.admin(), people.browser()
        token = csrf(admin)
        with filled(disk):
            people.time_ms += 10 * 60_000  # sessions note when they were seen
            assert admin.get("/c/main/").status_code == 200
            assert admin.get("/users").status_code == 200
            for answer in (
                log_in(late, "admin", ADMIN_PASSWORD),
                admin.post("/users", data={"csrf": token, "name": "vera", "role": "viewer",
                                           "clusters": "*", "topics": "*"}),
            ):  # fmt: skip
                assert answer.status_code == 507
                assert "disk is full" in answer.text
            with caplog.at_level(logging.ERROR):
                assert log_in(late, "admin", "wrong").status_code == 403
            assert "the audit log cannot be written" in caplog.text
        assert "vera" not in admin.get("/users").text
        assert log_in(late, "admin", ADMIN_PASSWORD).status_code == 200
        post(admin, "/users", name="vera", role="viewer", clusters="*", topics="*")
        assert "vera" in admin.get("/users").text


def test_history_has_what_fits_and_goes_on(disk: Path) -> None:
    """What came in while nothing could be written is in memory, and in the file when it can."""
    now = [1_790_000_000_000]
    history = KeptHistory(disk / "console", clock=lambda: now[0])
    began = now[0]
    with filled(disk):
        for _ in range(30):
            now[0] += 10_000
            history.append([Sample(key, now[0], 5.0) for key in KEYS])
            history._flush()
        assert len(history.read(KEYS[0], began, now[0] + 10_000).points) == 30
    history.close()
    again = KeptHistory(disk / "console", clock=lambda: now[0])
    assert len(again.read(KEYS[-1], began, now[0] + 10_000).points) == 30
    again.close()
