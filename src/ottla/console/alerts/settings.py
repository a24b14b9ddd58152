"""Rules and receivers of the console's TOML file: `[[alerts.rules]]`, `[[alerts.receivers]]`.

`alerts_of(table)` takes the table `alerts`. A secret may stand elsewhere: `url_env`, `secret_env`
and `password_env` name a variable of the environment, `url_file` and so on a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .rules import Receiver, Rule, RuleError, check_receiver, check_rule, from_mapping

SECRETS = ("url", "secret", "password")
SECRET_BYTES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class AlertSettings:
    rules: tuple[Rule, ...] = ()
    receivers: tuple[Receiver, ...] = ()


def alerts_of(
    table: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> AlertSettings:
    """Raises RuleError with the place of the mistake."""
    unknown = set(table) - {"rules", "receivers"}
    if unknown:
        raise RuleError(f"alerts: unknown {', '.join(sorted(unknown))}; rules or receivers")
    receivers: dict[str, Receiver] = {}
    for where, given in _tables(table, "receivers"):
        receiver = from_mapping(Receiver, _with_secrets(given, where, environment), where)
        _add(receivers, receiver, where, check_receiver)
    rules: dict[str, Rule] = {}
    for where, given in _tables(table, "rules"):
        rule = from_mapping(Rule, given, where)
        # A receiver may also be one that people made; the page says if there is none.
        _add(rules, rule, where, check_rule)
    return AlertSettings(tuple(rules.values()), tuple(receivers.values()))


def _tables(table: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RuleError(f"alerts.{name}: tables, [[alerts.{name}]]")
    return [(f"alerts.{name} {number}", each) for number, each in enumerate(found, 1)]


def _with_secrets(
    given: Mapping[str, Any], where: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    found = dict(given)
    for name in SECRETS:
        variable, file = found.pop(f"{name}_env", None), found.pop(f"{name}_file", None)
        if [name in found, variable is not None, file is not None].count(True) > 1:
            raise RuleError(f"{where}: one of {name}, {name}_env and {name}_file")
        if variable is not None:
            if str(variable) not in environment:
                raise RuleError(f"{where}: {name}_env: there is no variable {variable!r}")
            found[name] = environment[str(variable)]
        elif file is not None:
            try:
                with Path(str(file)).open(encoding="utf-8") as opened:
                    found[name] = opened.read(SECRET_BYTES_MAX).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise RuleError(f"{where}: {name}_file: {file}: {error}") from None
    return found


def _add(known: dict[str, Any], made: Any, where: str, check: Any) -> None:
    try:
        check(made)
    except RuleError as error:
        raise RuleError(f"{where}: {error}") from None
    if made.name in known:
        raise RuleError(f"{where}: there are two of the name {made.name!r}")
    known[made.name] = made
