"""/alerts: what fires now, rules, receivers, silences, history, and what was delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..access.guard import principal_of, require
from ..access.permissions import CONSOLE, Permission
from ..web.forms import Form, FormError, form_of
from ..web.notes import go_to
from ..web.rendering import console_of, render
from . import forms, steering
from .machine import Phase
from .rules import KINDS, Encryption, Receiver, ReceiverKind, Rule, RuleError, Severity, Side
from .store import DeliveryState
from .words import condition_words, watch_words

SILENCES_MIN = (30, 60, 240, 1440, 10080)
TABS = (
    ("", "Now"),
    ("rules", "Rules"),
    ("history", "History"),
    ("receivers", "Receivers"),
    ("deliveries", "Deliveries"),
)
ADMIN_TABS = {"receivers", "deliveries"}
NEW_RULE = Rule("", "group.lag", threshold=10_000, for_s=60)


def show(request: Request, name: str, tab: str, status: int = 200, **context: Any) -> Response:
    administers = principal_of(request).administers()
    tabs = [each for each in TABS if administers or each[0] not in ADMIN_TABS]
    return render(request, name, status, tabs=tabs, tab=tab, administers=administers, **context)


async def now(request: Request) -> Response:
    service = steering.service_of(request)
    alerts = steering.active(request)
    return show(
        request,
        "alerts.html",
        "",
        alerts=alerts,
        firing=sum(each.alert.phase is Phase.FIRING for each in alerts),
        silences=service.silences(),
        left_out=service.left_out,
        durations=SILENCES_MIN,
        operated=[
            each
            for each in console_of(request).clusters
            if principal_of(request).may(Permission.OPERATE, each)
        ],
    )


async def rules(request: Request) -> Response:
    service = steering.service_of(request)
    return show(
        request,
        "alert_rules.html",
        "rules",
        rules=[(each, condition_words(each), service.from_file(each.name))
               for each in service.rules()],
    )  # fmt: skip


def rule_form(request: Request, rule: Rule, error: str = "") -> Response:
    service = steering.service_of(request)
    return show(
        request,
        "alert_rule.html",
        "rules",
        422 if error else 200,
        rule=rule,
        error=error,
        fixed=service.from_file(rule.name),
        known=rule.name in {each.name for each in service.rules()},
        watched=[(each, watch_words(each)) for each in KINDS],
        sides=list(Side),
        severities=list(Severity),
        receivers=sorted(service.receivers()),
    )


async def rule(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    name = request.query_params.get("name", "")
    found = next((r for r in steering.service_of(request).rules() if r.name == name), NEW_RULE)
    return rule_form(request, found)


async def put_rule(request: Request, form: Form) -> Response:
    made = NEW_RULE
    try:
        made = forms.rule_of(form)
        if form.one("step") == "test":
            if not made.receivers:
                raise RuleError("receivers: choose one to test the rule with")
            told = [
                await run_in_threadpool(steering.try_receiver, request, each, made)
                for each in made.receivers
            ]
            words = "; ".join(
                f"{each.receiver}: {'taken' if each.state is DeliveryState.SENT else each.error}"
                for each in told
            )
            return rule_form(request, made, f"A test was sent. {words}. The rule is not saved yet.")
        await run_in_threadpool(steering.put_rule, request, made)
    except RuleError as error:
        return rule_form(request, made, str(error))
    return go_to(request, "/alerts/rules", f"The rule {made.name} is kept.")


async def receivers(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    return receivers_page(request)


def receivers_page(request: Request, error: str = "", form: Form | None = None) -> Response:
    service = steering.service_of(request)
    wanted = request.query_params.get("name", "")
    chosen = service.receivers().get(wanted) or Receiver(wanted, ReceiverKind.SLACK)
    return show(
        request,
        "alert_receivers.html",
        "receivers",
        422 if error else 200,
        receivers=[(each, service.from_file(name))
                   for name, each in sorted(service.receivers().items())],
        chosen=chosen,
        error=error,
        form=form or Form(),
        kinds=list(ReceiverKind),
        encryptions=list(Encryption),
    )  # fmt: skip


async def put_receiver(request: Request, form: Form) -> Response:
    try:
        made = forms.receiver_of(form, steering.service_of(request).receivers())
        await run_in_threadpool(steering.put_receiver, request, made)
    except RuleError as error:
        return receivers_page(request, str(error), form)
    return go_to(request, "/alerts/receivers", f"The receiver {made.name} is kept.")


async def history(request: Request) -> Response:
    text = request.query_params.get("before", "")
    before = int(text) if text.isdecimal() and len(text) < 18 else None
    found, more = await run_in_threadpool(steering.past, request, before)
    return show(
        request,
        "alert_history.html",
        "history",
        past=found,
        older=found[-1].id if found and more else None,
    )


async def deliveries(request: Request) -> Response:
    found = await run_in_threadpool(steering.deliveries, request)
    return show(request, "alert_deliveries.html", "deliveries", deliveries=found)


Change = Callable[[Request, Form], Any]


def changing(work: Change, where: str, said: str) -> Callable[[Request], Awaitable[Response]]:
    """A form that is one change, which leads back with a sentence."""

    async def endpoint(request: Request) -> Response:
        form = await form_of(request)
        try:
            done = await run_in_threadpool(work, request, form)
        except (RuleError, FormError) as error:
            return go_to(request, where, str(error), good=False)
        text, good = done if isinstance(done, tuple) else (said, True)
        return go_to(request, where, text, good)

    return endpoint


def posted(work: Callable[[Request, Form], Awaitable[Response]]) -> Any:
    async def endpoint(request: Request) -> Response:
        require(request, Permission.ADMINISTER, CONSOLE)
        return await work(request, await form_of(request))

    return endpoint


def do_delete_rule(request: Request, form: Form) -> None:
    steering.delete_rule(request, form.one("name"))


def do_delete_receiver(request: Request, form: Form) -> None:
    steering.delete_receiver(request, form.one("name"))


def do_test(request: Request, form: Form) -> tuple[str, bool]:
    name = form.one("name")
    told = steering.try_receiver(request, name)
    if told.state is DeliveryState.SENT:
        return f"{name} took the test message.", True
    return f"{name} did not take the test message: {told.error}", False


def do_again(request: Request, form: Form) -> None:
    steering.again(request, form.number("id") or 0)


def do_silence(request: Request, form: Form) -> None:
    steering.put_silence(
        request, form.one("rules"), form.one("clusters"), form.one("subjects"),
        form.number("minutes") or 0, form.one("note"),
    )  # fmt: skip


def do_end_silence(request: Request, form: Form) -> None:
    steering.end_silence(request, form.one("id"))


def post(path: str, endpoint: Any) -> Route:
    return Route(path, endpoint, methods=["POST"])


ROUTES: list[BaseRoute] = [
    Route("/alerts", now),
    Route("/alerts/rules", rules),
    Route("/alerts/rule", rule),
    post("/alerts/rule", posted(put_rule)),
    post("/alerts/rules/delete", changing(do_delete_rule, "/alerts/rules", "The rule is deleted.")),
    Route("/alerts/receivers", receivers),
    post("/alerts/receivers", posted(put_receiver)),
    post("/alerts/receivers/test", changing(do_test, "/alerts/receivers", "")),
    post("/alerts/receivers/delete",
         changing(do_delete_receiver, "/alerts/receivers", "The receiver is deleted.")),
    Route("/alerts/history", history),
    Route("/alerts/deliveries", deliveries),
    post("/alerts/deliveries/again",
         changing(do_again, "/alerts/deliveries", "It is sent once more.")),
    post("/alerts/silence", changing(do_silence, "/alerts", "It is silenced.")),
    post("/alerts/silence/end", changing(do_end_silence, "/alerts", "The silence is ended.")),
]  # fmt: skip
