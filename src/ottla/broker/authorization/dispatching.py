"""Puts the guard of an API around its handler."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.authorization.guards import Asked, Failure, Handle
from ottla.broker.authorization.rights import Rules
from ottla.broker.authorization.table import TABLE
from ottla.broker.context import Context
from ottla.broker.dispatch import failed
from ottla.wire.apis import Api


def guarded(rules: Rules, api: Api, handle: Handle, failure: Failure | None) -> Handle:
    """The handler, asked only what the client may ask."""
    guard = TABLE[api.key]
    if not guard.needs:
        return handle
    fail = partial(failed, api, failure)
    name, response = api.name, api.response

    def ask(request: Any, context: Context) -> Any:
        rights = rules.rights(context.peer, name)
        return guard(Asked(request, context, rights, handle, fail, response))

    return ask
