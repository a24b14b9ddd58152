"""Access for everybody who can reach the address, as one principal: for tests, and for a console
on loopback that was started without login."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from dataclasses import replace

from starlette.requests import HTTPConnection

from .guard import AuditEntry, Visit
from .permissions import Grant, Principal, Role

ENTRIES_MAX = 1000

logger = logging.getLogger(__name__)
EVERYBODY = Principal("local", (Grant(Role.ADMIN),))


def everybody(read_only: bool) -> Principal:
    return replace(EVERYBODY, read_only=read_only)


class OpenAccess:
    def __init__(self, principal: Principal = EVERYBODY) -> None:
        self.principal = principal
        self.entries: deque[AuditEntry] = deque(maxlen=ENTRIES_MAX)
        self._csrf = secrets.token_urlsafe(32)

    def visit_of(self, request: HTTPConnection) -> Visit | None:
        return Visit(self.principal, self._csrf)

    def anonymous_csrf(self, request: HTTPConnection) -> tuple[str, str | None]:
        return self._csrf, None

    def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)
        logger.info("%s", entry)
