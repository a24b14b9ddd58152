"""A console in a process of its own, and people who walk through it in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.console.picture import ClusterPicture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PATIENCE_MS = 60_000  # a busy machine is slow, not wrong
PASSWORD = "correct horse battery"
WIDE = (1280, 900)
PHONE = (360, 740)
# What a page of ours must never say: the browser's own complaints. 401 and 403 are answers.
ANSWERED = ("status of 40", "net::ERR_ABORTED")


class Person:
    """One browser profile: its cookies, the page it looks at, and all that the browser said."""

    def __init__(self, browser: Browser, address: str, size: tuple[int, int] = WIDE) -> None:
        self.address = address
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(
            base_url=address,
            viewport={"width": size[0], "height": size[1]},
            accept_downloads=True,
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.on("console", lambda said: self._heard(said.type, said.text))
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.context.on("dialog", lambda dialog: self._dialog(dialog.message))
        self.page: Page = self.context.new_page()

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(each in text for each in ANSWERED):
            self.complaints.append(text)

    def _dialog(self, text: str) -> None:
        self.complaints.append(f"a dialog came up: {text}")

    def go(self, path: str) -> Page:
        self.page.goto(path, wait_until="load")
        return self.page

    def sign_in(self, name: str, password: str) -> None:
        self.go("/login")
        self.page.get_by_label("User").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()

    def choose_password(self, current: str, new: str) -> None:
        self.page.get_by_label("Current password").fill(current)
        self.page.get_by_label("New password, at least").fill(new)
        self.page.get_by_label("New password again").fill(new)
        self.page.get_by_role("button", name="Change it").click()

    def first_sign_in(self, name: str, one_time: str, new: str = PASSWORD) -> None:
        self.sign_in(name, one_time)
        self.choose_password(one_time, new)
        self.page.get_by_role("button", name="Sign out").wait_for()

    def close(self) -> None:
        self.context.close()


@contextmanager
def person(browser: Browser, address: str, size: tuple[int, int] = WIDE) -> Iterator[Person]:
    """Leaves nothing open, and nothing that the browser complained of."""
    made = Person(browser, address, size)
    try:
        yield made
        assert made.complaints == []
    finally:
        made.close()


def wider_than_its_window(page: Page) -> list[str]:
    """What sticks out of the page to the right, except inside of what scrolls by itself."""
    found: list[str] = page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          return [...document.querySelectorAll("body *")]
            .filter((each) => each.getBoundingClientRect().right > width + 1)
            .map((each) => `${each.tagName}.${each.className}: ${each.textContent.slice(0, 40)}`);
        }"""
    )
    return found


def faint_text(page: Page) -> list[str]:
    """Text whose contrast with what is behind it is below 4.5 (WCAG AA), large text below 3."""
    found: list[str] = page.evaluate(
        """() => {
          const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          const known = new Map();
          const numbers = (color) => {
            if (!known.has(color)) {
              canvas.clearRect(0, 0, 1, 1);
              canvas.fillStyle = color;
              canvas.fillRect(0, 0, 1, 1);
              known.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
            }
            return known.get(color);
          };
          const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
            .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
            .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
          const over = (top, below) => {
            const share = top[3] / 255;
            const mixed = top.slice(0, 3).map((each, at) => each * share + below[at] * (1 - share));
            return [...mixed, 255];
          };
          const behind = (each) => {
            const layers = [];
            for (let at = each; at; at = at.parentElement) {
              layers.unshift(numbers(getComputedStyle(at).backgroundColor));
            }
            return layers.reduce((below, top) => over(top, below), [255, 255, 255, 255]);
          };
          const faint = [];
          for (const each of document.querySelectorAll("body *")) {
            const texts = [...each.childNodes].filter((node) => node.nodeType === 3);
            const own = texts.some((node) => node.data.trim());
            if (!own || !each.checkVisibility()) continue;
            if (each.closest(":disabled, svg, .skip, .hidden, [aria-hidden]")) continue;
            const style = getComputedStyle(each);
            const back = behind(each);
            const pair = [light(over(numbers(style.color), back)), light(back)];
            const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            const large = parseFloat(style.fontSize) >= 24
              || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
            if (contrast < (large ? 3 : 4.5) - 0.01) {
              faint.push(`${contrast.toFixed(2)} ${each.tagName}.${each.className}: `
                + each.textContent.trim().slice(0, 40));
            }
          }
          return faint;
        }"""
    )
    return found


def unnamed(page: Page) -> list[str]:
    """Fields, buttons and links without a name that a screen reader could say."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button, a[href]")]
          .filter((each) => each.type !== "hidden" && each.checkVisibility())
          .filter((each) => {
            const named = each.labels && [...each.labels].some((label) => label.textContent.trim());
            const said = each.getAttribute("aria-label") || each.getAttribute("aria-labelledby");
            const text = each.matches("button, a") && each.textContent.trim();
            return !named && !said && !text;
          })
          .map((each) => each.outerHTML.slice(0, 120))"""
    )
    return found


def pages_of(picture: ClusterPicture, base: str = "/c/main") -> list[str]:
    """The address of each kind of page of a cluster and of the console."""
    from ottla.console.web.formats import segment

    found = [
        f"{base}/", f"{base}/brokers", f"{base}/brokers?tab=configs", f"{base}/topics?internal=1",
        f"{base}/create-topic", f"{base}/groups", f"{base}/sql", f"{base}/transactions",
        f"{base}/reassignments", f"{base}/pipelines", f"{base}/security", f"{base}/create-acl",
        f"{base}/security?tab=users", f"{base}/set-scram-user",
        f"{base}/security?tab=quotas", f"{base}/set-quota", "/alerts",
        "/alerts/rules", "/alerts/rule",
        "/alerts/receivers", "/alerts/history", "/alerts/deliveries", "/users", "/tokens",
        "/audit",
    ]  # fmt: skip
    for broker in picture.brokers[:1]:
        found += [
            f"{base}/brokers/{broker.node_id}{tab}"
            for tab in ("", "?tab=partitions", "?tab=configs")
        ]
    for name in list(picture.topics)[:1]:
        topic = f"{base}/topics/{segment(name)}"
        found += [
            topic, f"{topic}?tab=configs", f"{topic}?tab=groups", f"{topic}?tab=producers",
            f"{topic}/messages",
            *(
                f"{base}/{action}?topic={segment(name)}"
                for action in ("add-partitions", "reassign", "truncate", "delete-topics")
            ),
        ]  # fmt: skip
    for name in list(picture.groups)[:1]:
        group = f"{base}/groups/{segment(name)}"
        found += [group, f"{group}?tab=members", f"{base}/reset-group?group={segment(name)}"]
    for pipeline in picture.pipelines[:1]:
        found += [f"{base}/pipelines/{segment(pipeline.name)}"]
    return found
