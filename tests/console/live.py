"""The console's pages over a real broker, in this process: for tests of what reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from starlette.testclient import TestClient

from ottla.client.admin import Admin
from ottla.console.access.middleware import protect
from ottla.console.access.open import EVERYBODY, OpenAccess
from ottla.console.access.permissions import Principal
from ottla.console.app import create_app
from ottla.console.context import Console
from ottla.console.picture import ClusterPicture

from .pictures import FakeHistory

# Records of tests have times of long ago, and a shared broker may live until it looks for old ones.
KEPT = {"retention.ms": "-1"}


class LiveCluster:
    """A cluster that is there, of which no picture was taken yet."""

    def __init__(self, bootstrap_servers: str, picture: ClusterPicture | None = None) -> None:
        self.client_properties: Mapping[str, Any] = {"bootstrap_servers": bootstrap_servers}
        self.picture = picture or ClusterPicture("main")
        self._admin = Admin(bootstrap_servers=bootstrap_servers)

    @property
    def name(self) -> str:
        return self.picture.name

    def admin(self) -> Admin:
        return self._admin

    def refresh(self) -> None:
        self.picture = replace(self.picture)  # nobody waits for a newer one

    def close(self) -> None:
        self._admin.close()


class Pages(TestClient):
    """A browser of one principal; `csrf` is what changes bring along."""

    access: OpenAccess
    cluster: LiveCluster

    @property
    def csrf(self) -> dict[str, str]:
        return {"X-CSRF-Token": self.access.anonymous_csrf(cast(Any, None))[0]}

    def lines(self, url: str, **options: Any) -> list[dict[str, Any]]:
        """The documents of an answer, one a line; a beat is left out."""
        answer = self.get(url, **options)
        assert answer.status_code == 200, answer.text
        return [each for each in map(json.loads, answer.text.splitlines()) if each]


@contextmanager
def pages(
    bootstrap_servers: str,
    principal: Principal = EVERYBODY,
    parts: Sequence[str] = ("data", "web"),
    **options: Any,
) -> Iterator[Pages]:
    """The console's pages for one who may do all, or less."""
    cluster = LiveCluster(bootstrap_servers)
    access = OpenAccess(principal)
    console = Console({cluster.name: cast(Any, cluster)}, FakeHistory(), **options)
    app = protect(create_app(console, parts=parts), access)
    made = Pages(app, base_url="http://localhost", raise_server_exceptions=False)
    made.access, made.cluster = access, cluster
    try:
        with made:
            yield made
    finally:
        cluster.close()
