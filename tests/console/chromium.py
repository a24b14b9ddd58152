"""A real browser, Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests import needs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Containers have neither a user namespace for its sandbox nor a large /dev/shm.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def chromium() -> Iterator[Browser]:
    program = needs.chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
