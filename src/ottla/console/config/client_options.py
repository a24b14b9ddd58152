"""Properties of Kafka's clients as options of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.client.config import COMMON, Option
from ottla.client.errors import KafkaConfigurationError
from ottla.settings.properties import MalformedProperties, parse_properties

from .options import ConfigError

BYTES_MAX = 1 << 20  # of a file of options


def text_of(path: str | Path) -> str:
    """Raises ConfigError."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            found = file.read(BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"cannot read {path}: {(reason or '').lower()}\nTry: a file that is there"
        ) from None
    if len(found) > BYTES_MAX:
        raise ConfigError(f"{path} is greater than {BYTES_MAX} bytes\nTry: a file of options")
    return found


def properties_of(path: str | Path) -> dict[str, str]:
    """A file in Java's properties syntax. Raises ConfigError."""
    try:
        entries = parse_properties(text_of(path), str(path))
    except MalformedProperties as error:
        raise ConfigError(f"{error}\nTry: name=value lines") from None
    return {each.name: each.value for each in entries}


def client_options(properties: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Those that a client here has, under its names, and the names of the others: a file for
    Kafka's tools may hold any of Java's. Raises ConfigError for a value that cannot be."""
    known: dict[str, Option] = {}
    for option in COMMON:
        known[option.name] = option
        known.update(dict.fromkeys(option.properties, option))
    found, others = {}, []
    for name, value in properties.items():
        each = known.get(name) or known.get(name.replace(".", "_"))
        if each is None:
            others.append(name)
            continue
        try:
            each.convert(value)
        except (ValueError, TypeError) as rule:
            shown = "a value that is not shown" if "password" in each.name else repr(value)
            raise ConfigError(
                f"{where}: {name} must be {rule} (got {shown})\nTry: {each.doc}"
            ) from None
        except KafkaConfigurationError as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
        found[each.name] = value
    return found, others
