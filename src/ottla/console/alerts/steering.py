"""What pages and the API do with alerts: who may see and change what, and the audit of each change.

Rules and receivers belong to the console: its admins change them. A silence belongs to clusters:
operators of all of them set it. An alert is seen by who may view what it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..access.guard import audit, principal_of, require
from ..access.permissions import CONSOLE, Permission
from ..web.rendering import console_of
from .machine import Alert, Phase
from .rounds import AlertKey
from .rules import NOTE_CHARACTERS_MAX, Receiver, Rule, RuleError, Silence, check_rule
from .service import AlertService
from .store import Delivery, DeliveryState, Past

SILENCE_MS_MAX = 30 * 24 * 3600_000
PAST_MAX = 100
PAST_LOOKED_AT_MAX = 1_000  # entries looked through for one page of those that may be seen
T = TypeVar("T")


class Shown(NamedTuple):
    key: AlertKey
    alert: Alert
    text: str
    severity: str
    silenced: bool


def service_of(request: Request) -> AlertService:
    service = console_of(request).alerts
    if service is None:
        raise HTTPException(404, "This console keeps no alerts.")
    return service


class Sight:
    """Which alerts the one who asks may see; made once for an answer."""

    def __init__(self, request: Request) -> None:
        self._principal = principal_of(request)
        self._watch = {rule.name: rule.watch for rule in service_of(request).rules()}

    def sees(self, rule: str, cluster: str, subject: str, topic: str) -> bool:
        principal = self._principal
        if not principal.may(Permission.VIEW, cluster):
            return False
        if principal.sees_all_topics(cluster):
            return True
        kind = self._watch.get(rule, "").split(".")[0]
        if topic or kind == "topic":
            return principal.may(Permission.VIEW, cluster, topic or subject)
        if kind in ("group", "pipeline"):
            # Its total would tell of topics that are not visible.
            return principal.may(Permission.READ, cluster)
        return kind in ("broker", "cluster")


class AlertNow(NamedTuple):
    """What the overview of a cluster says of an alert."""

    severity: str
    text: str
    since_ms: int
    url: str
    silenced: bool


def active(request: Request) -> list[Shown]:
    """The alerts that are not inactive, those that fire first, the newest of them first."""
    service, sight = service_of(request), Sight(request)
    severities = {rule.name: str(rule.severity) for rule in service.rules()}
    silences = service.silences()
    found = [
        Shown(
            key, alert, text, severities.get(key.rule, "warning"),
            any(each.covers(*key[:3]) for each in silences),
        )
        for key, (alert, text) in service.alerts().items()
        if sight.sees(*key)
    ]  # fmt: skip
    order = {"critical": 0, "warning": 1}
    return sorted(
        found,
        key=lambda each: (
            each.alert.phase is not Phase.FIRING, order.get(each.severity, 2),
            -each.alert.since_ms, each.key,
        ),
    )  # fmt: skip


def firing_now(request: Request, cluster: str) -> list[AlertNow]:
    """Those of one cluster that fire, for its overview."""
    if console_of(request).alerts is None:
        return []
    return [
        AlertNow(each.severity, each.text, each.alert.since_ms, "/alerts", each.silenced)
        for each in active(request)
        if each.key.cluster == cluster and each.alert.phase is Phase.FIRING
    ]


def past(request: Request, before: int | None, limit: int = PAST_MAX) -> tuple[list[Past], bool]:
    """Alerts that fired, the newest first, and whether there are more. Reads a disk."""
    service, sight = service_of(request), Sight(request)
    looked_at = service.store.past(before=before, limit=PAST_LOOKED_AT_MAX)
    found = [
        each for each in looked_at if sight.sees(each.rule, each.cluster, each.subject, each.topic)
    ]
    return found[:limit], len(found) > limit or len(looked_at) == PAST_LOOKED_AT_MAX


def deliveries(request: Request) -> list[Delivery]:
    """What was sent and what was not, to admins of the console. Reads a disk."""
    require(request, Permission.ADMINISTER, CONSOLE)
    return service_of(request).store.deliveries()


def _changed(request: Request, action: str, target: str, change: Callable[[], T]) -> T:
    """A change of the console's; audited, whatever comes of it."""
    require(request, Permission.ADMINISTER, CONSOLE)
    try:
        done = change()
    except RuleError as error:
        audit(request, action, CONSOLE, target, "refused", str(error))
        raise
    audit(request, action, CONSOLE, target, "done")
    return done


def put_rule(request: Request, rule: Rule) -> None:
    service = service_of(request)
    _changed(request, "put-rule", rule.name, lambda: service.put_rule(rule))


def delete_rule(request: Request, name: str) -> None:
    service = service_of(request)
    _changed(request, "delete-rule", name, lambda: service.delete_rule(name))


def put_receiver(request: Request, receiver: Receiver) -> None:
    service = service_of(request)
    _changed(request, "put-receiver", receiver.name, lambda: service.put_receiver(receiver))


def delete_receiver(request: Request, name: str) -> None:
    service = service_of(request)
    _changed(request, "delete-receiver", name, lambda: service.delete_receiver(name))


def try_receiver(request: Request, receiver: str, rule: Rule | None = None) -> Delivery:
    """Sends now; waits for the receiver."""
    service = service_of(request)
    if rule is not None:
        check_rule(rule)
    done = _changed(request, "test-receiver", receiver, lambda: service.test(receiver, rule))
    if done.state is not DeliveryState.SENT:
        audit(request, "test-receiver", CONSOLE, receiver, "failed", done.error)
    return done


def again(request: Request, ident: int) -> None:
    service = service_of(request)
    _changed(request, "send-again", str(ident), lambda: service.again(ident))


def put_silence(
    request: Request, rules: str, clusters: str, subjects: str, minutes: int, note: str
) -> str:
    """For all clusters that the pattern matches, of which one must be operator."""
    service = service_of(request)
    made = Silence(
        "", rules or "*", clusters or "*", subjects or "*",
        service.clock() + minutes * 60_000, principal_of(request).name,
        note[:NOTE_CHARACTERS_MAX],
    )  # fmt: skip
    if not 0 < minutes * 60_000 <= SILENCE_MS_MAX:
        raise RuleError(f"minutes: 1 to {SILENCE_MS_MAX // 60_000} (got {minutes})")
    _may_silence(request, made)
    try:
        ident = service.put_silence(made)
    except RuleError as error:
        audit(request, "silence", made.clusters, made.rules, "refused", str(error))
        raise
    detail = f"subjects {made.subjects}, {minutes} min: {made.note}"
    audit(request, "silence", made.clusters, made.rules, "done", detail)
    return ident


def end_silence(request: Request, ident: str) -> None:
    service = service_of(request)
    found = next((each for each in service.silences() if each.id == ident), None)
    if found is None:
        raise RuleError("this silence has ended already")
    _may_silence(request, found)
    service.end_silence(ident)
    audit(request, "end-silence", found.clusters, found.rules, "done", f"subjects {found.subjects}")


def _may_silence(request: Request, silence: Silence) -> None:
    matched = [each for each in console_of(request).clusters if silence.covers_cluster(each)]
    for each in matched or [CONSOLE]:
        require(request, Permission.OPERATE, each)
    if silence.clusters != "*" and not matched:
        raise RuleError(f"clusters: no cluster is called {silence.clusters!r}")
