"""Changes of a cluster: the pages' actions, each with a preview.

`POST …/actions/<name>/preview` tells what would happen, and the `fields` with which
`POST …/actions/<name>` does exactly that. What destroys needs `confirm`, the preview's `word`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..access.guard import principal_of
from ..web.acting import WRONG, Action, Asking, Outcome, carried_out
from ..web.asked import asked_of, sentence_of
from ..web.forms import Form
from ..web.rendering import cluster_of
from ..web.routes import ACTIONS
from ..web.visible import visible
from .endpoint import Endpoint, body_of, json_answer

CONFIRM = "What is to be typed before something is destroyed: the preview's `word`."
FIELDS: dict[str, tuple[str, Mapping[str, str]]] = {
    "create-topic": ("Create a topic.", {
        "topic": "Its name.", "partitions": "How many.", "replicas": "Of each partition.",
        "policy": "delete, compact or compact,delete.", "configs": "name=value lines."}),
    "delete-topics": ("Delete topics.", {"topic": "A name, or a list of them."}),
    "add-partitions": ("Add partitions.", {
        "topic": "Its name.", "total": "How many it has then."}),
    "truncate": ("Delete the oldest records.", {
        "topic": "Its name.", "partition": "Only this one.", "until": "all, time or offset.",
        "time": "With until=time.", "offset": "With until=offset.",
        "offsets": "0:17,1:4 as the preview found them."}),
    "change-config": ("Set or reset a config.", {
        "kind": "topic, broker or group.", "name": "Of what; empty for all brokers.",
        "config": "Its name.", "value": "The new one.", "reset": "1: back to what it inherits."}),
    "reset-group": ("Move a group's committed offsets.", {
        "group": "Its id.", "topic": "Only of this one.", "partition": "Only this one.",
        "to": "earliest, latest, offset, time, ago or shift.", "offset": "With to=offset.",
        "time": "With to=time.", "amount": "With to=ago.", "unit": "With to=ago.",
        "shift": "With to=shift.", "offsets": "topic/0:17,1:4 as the preview found them."}),
    "delete-group": ("Delete a group.", {"group": "Its id."}),
    "end-transaction": ("Fence a transactional id, which ends its transaction.", {
        "id": "The transactional id."}),
    "abort-transaction": ("Abort a hanging transaction in one partition.", {
        "topic": "Its name.", "partition": "Which one.", "producer": "The producer's id."}),
    "reassign": ("Move replicas.", {
        "topic": "Its name.", "broker": "A list of brokers that shall have them.",
        "replicas": "Of each partition.", "plan": "As the preview has it."}),
    "cancel-reassignment": ("Take back what moves.", {
        "topic": "Its name.", "partition": "A list of partitions; all unless given."}),
    "create-acl": ("Create an ACL.", {
        "principal": "User:alice, or User:*.", "permission": "ALLOW or DENY.",
        "operation": "READ, WRITE …", "type": "TOPIC, GROUP, CLUSTER …",
        "name": "Of the resource; * for all.", "pattern": "LITERAL or PREFIXED.",
        "host": "An address; * unless given."}),
    "delete-acl": ("Delete an ACL.", {
        "principal": "As it has it.", "permission": "As it has it.", "operation": "As it has it.",
        "type": "As it has it.", "name": "As it has it.", "pattern": "As it has it.",
        "host": "As it has it."}),
    "set-scram-user": ("Let a user log in by SCRAM.", {
        "user": "Its name.", "mechanism": "SCRAM-SHA-256 or SCRAM-SHA-512.",
        "password": "Never shown again."}),
    "delete-scram-user": ("Delete a user's SCRAM credential.", {
        "user": "Its name.", "mechanism": "SCRAM-SHA-256 or SCRAM-SHA-512."}),
    "set-quota": ("Set a quota of clients.", {
        "user": "Its name.", "user_default": "1: each user without one of its own.",
        "client_id": "Its name, alone or with a user.",
        "client_id_default": "1: each without one of its own.",
        "ip": "An address, alone.", "ip_default": "1: each without one of its own.",
        "quota": "producer_byte_rate, request_percentage …",
        "value": "A number above 0; a text where it is no whole one."}),
    "remove-quota": ("Remove a quota of clients.", {
        "user": "As set-quota has it.", "user_default": "As set-quota has it.",
        "client_id": "As set-quota has it.", "client_id_default": "As set-quota has it.",
        "ip": "As set-quota has it.", "ip_default": "As set-quota has it.",
        "quota": "Its name."}),
    "elect-leaders": ("Elect leaders.", {
        "topic": "Its name; all topics unless given.", "how": "preferred or unclean."}),
}  # fmt: skip


async def asking_of(request: Request) -> Asking:
    """Fields are texts, numbers, truths or lists of them."""
    form = Form()
    for name, value in (await body_of(request)).items():
        values = value if isinstance(value, list) else [value]
        texts = [_text(name, each) for each in values if each is not None]
        if texts:
            form[name] = texts
    cluster = cluster_of(request)
    return Asking(request, cluster, visible(principal_of(request), cluster.picture), form)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int):
        return str(value)
    raise HTTPException(400, f"{name}: a text or a whole number, or a list of them")


def previewing(action: Action) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        asking = await asking_of(request)
        action.authorize(asking)
        limiter = asked_of(request).limiter(asking.cluster.name)
        try:
            preview = await to_thread.run_sync(action.plan, asking, limiter=limiter)
        except WRONG as failed:
            raise HTTPException(422, sentence_of(failed)) from None
        return json_answer(preview)

    return endpoint


def doing(action: Action) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        asking = await asking_of(request)
        action.authorize(asking)
        word = action.word(asking)
        if word and asking.fields.one("confirm") != word:
            raise HTTPException(422, f"confirm: it must be {word!r}; nothing was changed.")
        outcome: Outcome = await carried_out(action, asking)
        if not outcome.good:
            raise HTTPException(422, outcome.text)
        return json_answer({"result": "done", "text": outcome.text})

    return endpoint


def endpoints() -> list[Endpoint]:
    found = []
    for action in ACTIONS:
        summary, fields = FIELDS[action.name]
        path = f"/clusters/{{cluster}}/actions/{action.name}"
        body = {**fields, "confirm": CONFIRM}
        found += [
            Endpoint("POST", path, doing(action), summary, {}, body),
            Endpoint(
                "POST", f"{path}/preview", previewing(action),
                f"What would happen: {summary[0].lower()}{summary[1:]}", {}, fields,
            ),
        ]  # fmt: skip
    return found
