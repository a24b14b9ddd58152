"""Every page of the console in a real browser, over clusters that never ran.

What is looked at needs no broker: markup in all names, labels, contrast, the width of a phone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

import pytest
import uvicorn

from ottla.console.access.local import LocalAccess
from ottla.console.access.store import Store
from ottla.console.alerts.service import AlertService
from ottla.console.app import protected_app
from ottla.console.context import Console
from ottla.console.picture import ClusterPicture
from ottla.console.serving import Server, listening

from .chromium import chromium
from .people import cheap_passwords
from .pictures import FakeCluster, FakeHistory, hostile_picture, picture
from .recording import RecordingAdmin
from .walk import (
    PHONE,
    WIDE,
    Person,
    faint_text,
    pages_of,
    person,
    unnamed,
    wider_than_its_window,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.xdist_group("console_browser")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def served(of: ClusterPicture, data_dir: Path) -> Iterator[tuple[str, str]]:
    """The whole console over one picture: its address, and the first password of admin."""
    access = LocalAccess(Store(data_dir))
    cluster = FakeCluster(of, RecordingAdmin())
    clusters = {of.name: cluster}
    alerts = AlertService(clusters, data_dir)
    app = protected_app(Console(clusters, FakeHistory(), access=access, alerts=alerts))
    listener = listening("127.0.0.1", 0)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1
    )
    server = Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        assert access.first_password is not None
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", access.first_password
    finally:
        server.should_exit = True
        thread.join()
        alerts.stop()


@contextmanager
def admin_of(browser: Browser, of: ClusterPicture, data_dir: Path) -> Iterator[Person]:
    with (
        cheap_passwords(),
        served(of, data_dir) as (address, password),
        person(browser, address) as admin,
    ):
        admin.first_sign_in("admin", password)
        yield admin


@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
def test_each_page_can_be_read_by_all_and_runs_no_name(
    browser: Browser, tmp_path: Path, hostile: bool
) -> None:
    """Names are never markup; text has the contrast of WCAG AA, light and dark; each field and
    button has a name; at 360 pixels nothing is wider than the window."""
    shown = hostile_picture() if hostile else picture(topics=12, groups=5)
    faults: list[str] = []
    with admin_of(browser, shown, tmp_path) as admin:
        for path in pages_of(shown):
            page = admin.go(path)
            # No topic can have such a name: pages that would ask the cluster refuse it.
            assert hostile or page.locator(".error-page").count() == 0, path
            found = [*markup(page), *unnamed(page)]
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                found += faint_text(page)
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            found += wider_than_its_window(page)
            page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
            faults += [f"{path}: {each}" for each in found]
    assert faults == []


def markup(page: Page) -> list[str]:
    """What a name of HOSTILE would have made."""
    elements = page.locator("img[src=x], script:not([src])").all()
    calculated = ["a template took {{7*7}}"] if "amp;49" in page.content() else []
    return [*(each.evaluate("(it) => it.outerHTML") for each in elements), *calculated]


def test_the_keyboard_reaches_what_the_mouse_does(browser: Browser, tmp_path: Path) -> None:
    """Tab goes to the link that skips to the content first, and is seen where it is; / searches."""
    shown = picture()
    with admin_of(browser, shown, tmp_path) as admin:
        page = admin.go("/c/main/topics")
        page.keyboard.press("Tab")
        assert focused(page) == "Skip to content"
        page.keyboard.press("Enter")
        page.keyboard.press("/")
        page.keyboard.type("0003")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=0003**")
        assert page.locator("tbody tr").count() == 1
        for _ in range(40):
            page.keyboard.press("Tab")
            outline = page.evaluate(
                """() => {
                  const style = getComputedStyle(document.activeElement);
                  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
                    || style.boxShadow !== "none" || document.activeElement === document.body;
                }"""
            )
            assert outline, page.evaluate("() => document.activeElement.outerHTML")
            if focused(page) == "topic-0003":
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/topics/topic-0003")


def focused(page: Page) -> str:
    text: str = page.evaluate("() => document.activeElement.textContent.trim()")
    return unquote(text)
