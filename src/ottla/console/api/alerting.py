"""Alerts: what fires, rules, receivers (never their secrets), silences, history, deliveries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..access.guard import require
from ..access.permissions import CONSOLE, Permission
from ..alerts import steering
from ..alerts.forms import SECRET_FIELDS
from ..alerts.rules import Receiver, Rule, RuleError, from_mapping
from ..alerts.store import DeliveryState
from .endpoint import Endpoint, body_of, json_answer, plain, whole

RULE_FIELDS = {
    "watch": "What: group.lag, broker.up …", "side": "above or below.",
    "threshold": "A number.", "clear": "Where it resolves; the threshold unless given.",
    "for_s": "So long before it fires.", "clear_for_s": "So long before it resolves.",
    "repeat_s": "Told again after; 0: once.", "clusters": "A pattern.",
    "subjects": "A pattern of topics, groups, brokers or pipelines.",
    "topics": "A pattern: a group's lag by topic.", "states": "With group.state.",
    "severity": "warning or critical.", "receivers": "A list of names.", "note": "What to do.",
    "enabled": "true or false.",
}  # fmt: skip
RECEIVER_FIELDS = {
    "kind": "slack, dingtalk, wecom, feishu, json or email.", "url": "Of the webhook. Secret.",
    "secret": "Of DingTalk's or Feishu's signature.", "host": "Of e-mail.", "port": "Of e-mail.",
    "encryption": "starttls, tls or none.", "user": "Of e-mail.", "password": "Of e-mail.",
    "sender": "Of e-mail.", "to": "A list of addresses.",
}  # fmt: skip
T = TypeVar("T")


async def done(work: Callable[..., T], *arguments: Any) -> T:
    """In a thread; what the rules forbid is 422."""
    try:
        return await run_in_threadpool(work, *arguments)
    except RuleError as error:
        raise HTTPException(422, str(error)) from None


async def active(request: Request) -> Response:
    found = [
        {**plain(each.key), "text": each.text, "severity": each.severity,
         "silenced": each.silenced, **plain(each.alert)}
        for each in steering.active(request)
    ]  # fmt: skip
    return json_answer({"total": len(found), "items": found})


async def rules(request: Request) -> Response:
    service = steering.service_of(request)
    found = [{**plain(each), "from_file": service.from_file(each.name)} for each in service.rules()]
    return json_answer({"total": len(found), "items": found})


async def put_rule(request: Request) -> Response:
    given = {**await body_of(request), "name": request.path_params["rule"]}
    try:
        made: Rule = from_mapping(Rule, given, "rule")
    except RuleError as error:
        raise HTTPException(422, str(error)) from None
    await done(steering.put_rule, request, made)
    return json_answer(made)


async def delete_rule(request: Request) -> Response:
    await done(steering.delete_rule, request, request.path_params["rule"])
    return json_answer({"result": "done"})


def shown(receiver: Receiver) -> dict[str, Any]:
    """A receiver without what is secret of it."""
    return {
        each.name: plain(getattr(receiver, each.name))
        for each in fields(receiver)
        if each.name not in SECRET_FIELDS
    } | {"leads_to": receiver.described}


async def receivers(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    found = [shown(each) for _, each in sorted(steering.service_of(request).receivers().items())]
    return json_answer({"total": len(found), "items": found})


async def put_receiver(request: Request) -> Response:
    given = {**await body_of(request), "name": request.path_params["receiver"]}
    try:
        made: Receiver = from_mapping(Receiver, given, "receiver")
    except RuleError as error:
        raise HTTPException(422, str(error)) from None
    await done(steering.put_receiver, request, made)
    return json_answer(shown(made))


async def delete_receiver(request: Request) -> Response:
    await done(steering.delete_receiver, request, request.path_params["receiver"])
    return json_answer({"result": "done"})


async def test_receiver(request: Request) -> Response:
    told = await done(steering.try_receiver, request, request.path_params["receiver"])
    taken = told.state is DeliveryState.SENT
    return json_answer({"taken": taken, "error": told.error}, 200 if taken else 502)


async def silences(request: Request) -> Response:
    found = steering.service_of(request).silences()
    return json_answer({"total": len(found), "items": found})


async def add_silence(request: Request) -> Response:
    body = await body_of(request)
    texts = [str(body.get(name, "")) for name in ("rules", "clusters", "subjects")]
    minutes = body.get("minutes")
    if not isinstance(minutes, int) or isinstance(minutes, bool):
        raise HTTPException(422, "minutes: a whole number")
    note = str(body.get("note", ""))
    ident = await done(steering.put_silence, request, *texts, minutes, note)
    return json_answer({"id": ident}, 201)


async def end_silence(request: Request) -> Response:
    await done(steering.end_silence, request, request.path_params["id"])
    return json_answer({"result": "done"})


async def history(request: Request) -> Response:
    before = whole(request, "before", 0, 10**11) or None
    found, more = await run_in_threadpool(steering.past, request, before)
    return json_answer({"items": found, "more": more})


async def deliveries(request: Request) -> Response:
    return json_answer({"items": await run_in_threadpool(steering.deliveries, request)})


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/alerts", active, "Alerts that are pending or fire."),
        Endpoint("GET", "/alerts/rules", rules, "The rules."),
        Endpoint("PUT", "/alerts/rules/{rule}", put_rule, "Make or change a rule.", {},
                 RULE_FIELDS),
        Endpoint("DELETE", "/alerts/rules/{rule}", delete_rule, "Delete a rule."),
        Endpoint("GET", "/alerts/receivers", receivers, "Receivers, without their secrets."),
        Endpoint("PUT", "/alerts/receivers/{receiver}", put_receiver,
                 "Make or change a receiver.", {}, RECEIVER_FIELDS),
        Endpoint("DELETE", "/alerts/receivers/{receiver}", delete_receiver, "Delete a receiver."),
        Endpoint("POST", "/alerts/receivers/{receiver}/test", test_receiver,
                 "Send a test message now."),
        Endpoint("GET", "/alerts/silences", silences, "Silences that have not ended."),
        Endpoint("POST", "/alerts/silences", add_silence, "Be silent for a while.", {},
                 {"rules": "A pattern.", "clusters": "A pattern.", "subjects": "A pattern.",
                  "minutes": "How long.", "note": "Why."}),
        Endpoint("DELETE", "/alerts/silences/{id}", end_silence, "End a silence."),
        Endpoint("GET", "/alerts/history", history, "Alerts that fired, the newest first.",
                 {"before": "The id of the oldest that is known."}),
        Endpoint("GET", "/alerts/deliveries", deliveries, "Messages: sent, waiting, failed."),
    ]  # fmt: skip
