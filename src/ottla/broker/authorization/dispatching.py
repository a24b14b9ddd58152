"""Puts the guard of an API around its handler."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.authorization.guards import Failure, Guarded, Handle
from ottla.broker.authorization.rights import Rules
from ottla.broker.authorization.table import TABLE
from ottla.broker.context import Context
from ottla.broker.dispatch import failed
from ottla.wire.apis import Api


def guarded(
    rules: Rules, api: Api, version: int, handle: Handle, failure: Failure | None
) -> Handle:
    """The handler, asked only what the client may ask."""
    guard = TABLE[api.key]
    if not guard.needs:
        return handle
    name = api.name
    broker = rules.broker
    check = guard.around(Guarded(handle, partial(failed, api, failure), api.response))

    def ask(request: Any, context: Context) -> Any:
        # As `rules.rights` does, without a call while nothing has changed: every produce and fetch
        # comes by here.
        peer = context.peer
        session = peer.rights
        if session is None or session.acls is not broker.image.acls:
            session = rules.session(peer)
        context.rights = session.rights.get(name) or session.rights_in(name)
        return check(request, context)

    shortcut = getattr(guard, "shortcut", None)
    return ask if shortcut is None else shortcut(rules, handle, ask, version)
