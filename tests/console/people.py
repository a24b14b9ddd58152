"""A console with users, in the process: its browser logs in as people do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from starlette.testclient import TestClient

from ottla.console.access import passwords
from ottla.console.access.local import LocalAccess
from ottla.console.access.permissions import Grant
from ottla.console.access.store import Store
from ottla.console.app import protected_app
from ottla.console.context import Console
from ottla.console.picture import ClusterPicture

from .pictures import FakeCluster, FakeHistory, picture

ADMIN_PASSWORD = "correct horse battery"
CHEAP_COST = 16  # of scrypt: the tests' passwords are no secrets


@contextmanager
def cheap_passwords() -> Iterator[None]:
    with patch.object(passwords, "COST", CHEAP_COST):
        yield


class People:
    """The console's access, and browsers of people who use it."""

    def __init__(self, data_dir: Path, of: ClusterPicture | None = None, **options: Any) -> None:
        self.time_ms = 1_790_000_000_000
        self.access = LocalAccess(
            Store(data_dir), clock=lambda: self.time_ms, read_only=options.get("read_only", False)
        )
        cluster = FakeCluster(of if of is not None else picture())
        self.console = Console(
            {cluster.name: cluster}, FakeHistory(), access=self.access, **options
        )
        self.app = protected_app(self.console)

    def browser(self) -> TestClient:
        return TestClient(self.app, base_url="http://localhost:8084", raise_server_exceptions=False)

    def admin(self) -> TestClient:
        """A browser of admin, who chose a password."""
        browser = self.browser()
        if self.access.first_password is not None:
            log_in(browser, "admin", self.access.first_password)
            change_password(browser, self.access.first_password, ADMIN_PASSWORD)
            self.access.first_password = None
        else:
            log_in(browser, "admin", ADMIN_PASSWORD)
        return browser

    def user(self, name: str, grants: Sequence[Grant]) -> TestClient:
        """A browser of a new user with these roles, who chose a password."""
        one_time = self.access.add_user(name, grants)
        browser = self.browser()
        log_in(browser, name, one_time)
        change_password(browser, one_time, f"a long phrase for {name}")
        return browser


def csrf(browser: TestClient, page: str = "/tokens") -> str:
    found = re.search(r'name="csrf" (?:value|content)="([^"]+)"', browser.get(page).text)
    assert found is not None
    return found[1]


def post(browser: TestClient, path: str, page: str = "/tokens", **fields: Any) -> Any:
    """Send a form with the token of the session."""
    return browser.post(path, data={"csrf": csrf(browser, page), **fields})


def log_in(browser: TestClient, name: str, password: str, next_path: str = "/") -> Any:
    fields = {"name": name, "password": password, "next": next_path}
    return post(browser, "/login", "/login", **fields)


def change_password(browser: TestClient, current: str, new: str) -> Any:
    return post(browser, "/password", "/password", current=current, new=new, again=new)
