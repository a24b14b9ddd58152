"""Rules and receivers out of the fields of a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..web.forms import Form
from .rules import Receiver, ReceiverKind, Rule, RuleError, from_mapping

PORTS = {"starttls": 587, "tls": 465, "none": 25}
SECRET_FIELDS = ("url", "secret", "password")


def rule_of(form: Form) -> Rule:
    """RuleError where a field is wrong."""
    given: dict[str, Any] = {
        name: form.one(name)
        for name in ("name", "watch", "side", "clusters", "subjects", "topics", "severity", "note")
    }
    given["threshold"] = _number(form, "threshold") or 0.0
    given["clear"] = _number(form, "clear")
    for name in ("for_s", "clear_for_s", "repeat_s"):
        given[name] = int(_number(form, name) or 0)
    given["states"] = words(form.one("states"))
    given["receivers"] = tuple(form.get("receivers", ()))
    given["enabled"] = form.one("enabled") == "1"
    made: Rule = from_mapping(Rule, given, "rule")
    return made


def receiver_of(form: Form, before: Mapping[str, Receiver]) -> Receiver:
    """What is secret and not typed again stays as it was."""
    kind = form.one("kind")
    given: dict[str, Any] = {name: form.one(name) for name in ("name", "kind")}
    old = before.get(given["name"])
    used: tuple[str, ...] = ("url", "secret")
    if kind == ReceiverKind.EMAIL:
        used = ("host", "encryption", "user", "password", "sender")
        given["to"] = words(form.one("to"))
        usual = PORTS.get(form.one("encryption"), 0)
        given["port"] = int(_number(form, "mail_port") or usual)
    for name in used:
        given[name] = form.one(name)
        if name in SECRET_FIELDS and not given[name] and old is not None and old.kind == kind:
            given[name] = getattr(old, name)
    made: Receiver = from_mapping(Receiver, given, "receiver")
    return made


def words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _number(form: Form, name: str) -> float | None:
    text = form.one(name)
    if not text:
        return None
    try:
        found = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise RuleError(f"{name}: a number (got {text[:40]!r})") from None
    if not abs(found) < 1e18:
        raise RuleError(f"{name}: a number below 1e18 (got {text[:40]!r})")
    return found
