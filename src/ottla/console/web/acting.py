"""What changes a cluster: a form, a preview of what will happen, and the change itself.

An `Action` says who may do it, what it would do (`plan`) and does it (`do`); both run in threads.
This module leads through the steps, checks the typed confirmation, and sees that each change, done
or failed, stands in the audit log. CSRF has been checked before (`access/middleware.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.admin import Admin
from ottla.client.errors import KafkaError

from ..access.guard import audit, principal_of, require
from ..access.permissions import Permission
from ..context import Cluster
from ..picture import ClusterPicture
from .asked import asked_of, sentence_of
from .forms import Form, FormError, form_of
from .notes import go_to
from .rendering import base_of, cluster_of, render
from .visible import visible

log = logging.getLogger(__name__)
NEWER_PICTURE_S_MAX = 2.0  # how long the answer to a change waits for a picture that shows it
LOOK_S = 0.05
WRONG = (KafkaError, FormError, TimeoutError, OSError, ValueError)  # what the page shows


@dataclass(frozen=True, slots=True)
class Asking:
    """One request of a user for an action."""

    request: Request
    cluster: Cluster
    picture: ClusterPicture  # what this principal may see
    fields: Form

    @property
    def base(self) -> str:
        return base_of(self.cluster.name)

    @property
    def admin(self) -> Admin:
        return self.cluster.admin()

    def may(self, permission: Permission, topic: str | None = None) -> bool:
        return principal_of(self.request).may(permission, self.cluster.name, topic)

    def require(self, permission: Permission, topic: str | None = None) -> None:
        require(self.request, permission, self.cluster.name, topic)


@dataclass(frozen=True, slots=True)
class Preview:
    """What will happen: sentences, and a table of what changes."""

    title: str
    button: str
    sentences: Sequence[str] = ()
    warnings: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    fields: Mapping[str, object] = field(default_factory=dict)  # what the change is sent with
    word: str = ""  # to be typed, where something is destroyed
    secret: str = ""  # the name of a field that is typed anew, because no page shows it
    possible: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    good: bool = True
    detail: str = ""  # for the audit log; never a secret


class Action:
    """Something that a user may do to a cluster, under /c/{cluster}/<name>."""

    name: str  # also in the audit log
    template: str = ""  # of the form; without one the preview is the first page

    def authorize(self, asking: Asking) -> None:
        """Raises `Forbidden`."""
        raise NotImplementedError

    def target(self, asking: Asking) -> str:
        raise NotImplementedError

    def back(self, asking: Asking) -> str:
        """Where one who does not want it goes."""
        raise NotImplementedError

    def after(self, asking: Asking) -> str:
        """Where one goes when it is done."""
        return self.back(asking)

    def form_context(self, asking: Asking) -> dict[str, Any]:
        """What the form's template needs, from the picture."""
        return {}

    async def look(self, asking: Asking) -> dict[str, Any]:
        """The same with what must be asked of the cluster, which no form waits for."""
        return self.form_context(asking)

    def word(self, asking: Asking) -> str:
        """What must be typed; the same as the preview's."""
        return ""

    def plan(self, asking: Asking) -> Preview:
        """In a thread; raises `FormError`, `KafkaError`."""
        raise NotImplementedError

    def do(self, asking: Asking) -> Outcome:
        """In a thread; raises `FormError`, `KafkaError`."""
        raise NotImplementedError


def route_of(action: Action) -> Route:
    async def endpoint(request: Request) -> Response:
        return await answer(action, request)

    path = f"/c/{{cluster}}/{action.name}"
    return Route(path, endpoint, methods=["GET", "POST"], name=action.name)


async def answer(action: Action, request: Request) -> Response:
    cluster = cluster_of(request)
    fields = await form_of(request) if request.method == "POST" else query_of(request)
    picture = visible(principal_of(request), cluster.picture)
    asking = Asking(request, cluster, picture, fields)
    action.authorize(asking)
    if request.method == "POST" and fields.one("step") == "do":
        return await _done(action, asking)
    if request.method == "GET" and action.template:
        return await _form(action, asking)
    return await _preview(action, asking)


def query_of(request: Request) -> Form:
    fields = Form()
    for name, value in request.query_params.multi_items():
        fields.setdefault(name, []).append(value)
    return fields


async def _form(action: Action, asking: Asking, error: str = "") -> Response:
    context = await action.look(asking)
    return render(
        asking.request,
        action.template,
        422 if error else 200,
        action=action,
        fields=asking.fields,
        error=error,
        back=action.back(asking),
        **context,
    )


async def _preview(action: Action, asking: Asking, error: str = "") -> Response:
    limiter = asked_of(asking.request).limiter(asking.cluster.name)
    try:
        preview = await to_thread.run_sync(action.plan, asking, limiter=limiter)
    except WRONG as failed:
        if action.template:
            return await _form(action, asking, sentence_of(failed))
        return go_to(asking.request, action.back(asking), sentence_of(failed), good=False)
    return render(
        asking.request,
        "confirm.html",
        422 if error else 200,
        preview=preview,
        action=action,
        error=error,
        back=action.back(asking),
    )


async def _done(action: Action, asking: Asking) -> Response:
    word = action.word(asking)
    if word and asking.fields.one("confirm") != word:
        return await _preview(action, asking, f"Type {word} to confirm; nothing was changed.")
    outcome = await carried_out(action, asking)
    where = action.after(asking) if outcome.good else action.back(asking)
    return go_to(asking.request, where, outcome.text, outcome.good)


async def carried_out(action: Action, asking: Asking) -> Outcome:
    """Done and audited; where it was done, a picture that shows it is waited for."""
    before = asking.cluster.picture
    limiter = asked_of(asking.request).limiter(asking.cluster.name)
    outcome = await to_thread.run_sync(_attempt, action, asking, limiter=limiter)
    if outcome.good:
        asked_of(asking.request).forget(asking.cluster.name)
        asking.cluster.refresh()
        await _newer_picture(asking.cluster, before)
    return outcome


def _attempt(action: Action, asking: Asking) -> Outcome:
    """Do it, and write into the audit log what came of it."""
    try:
        outcome = action.do(asking)
    except WRONG as failed:
        outcome = Outcome(sentence_of(failed), good=False)
    except Exception:
        _audit(action, asking, Outcome("a fault of the console; its log has it", good=False))
        raise
    _audit(action, asking, outcome)
    return outcome


def _audit(action: Action, asking: Asking, outcome: Outcome) -> None:
    audit(
        asking.request,
        action.name,
        asking.cluster.name,
        action.target(asking),
        "done" if outcome.good else "failed",
        outcome.detail or outcome.text,
    )


async def _newer_picture(cluster: Cluster, before: ClusterPicture) -> None:
    for _ in range(int(NEWER_PICTURE_S_MAX / LOOK_S)):
        if cluster.picture is not before:
            return
        await asyncio.sleep(LOOK_S)
