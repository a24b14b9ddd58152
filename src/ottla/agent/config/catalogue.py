"""Types and options as rows, for `ottla agent types`."""

from __future__ import annotations

from .options import LONG_MAX, Option, text_of
from .refused import REFUSED
from .schema import TYPES
from .types import PartType, plain


def type_rows() -> list[dict[str, str]]:
    rows = [{"kind": type_.kind.value, "type": type_.name, "about": type_.doc} for type_ in TYPES]
    rows += [
        {"kind": type_.kind.value, "type": type_.name, "about": f"refused: {type_.why}."}
        for type_ in REFUSED
    ]
    return rows


def types_called(name: str) -> list[PartType]:
    """The types of that name, of whatever kind: there is a kafka source, channel and sink."""
    return [type_ for type_ in TYPES if plain(name) in map(plain, type_.names())]


def option_rows(type_: PartType) -> list[dict[str, str]]:
    return [
        {
            "option": f"{option.name}*" if option.name.endswith(".") else option.name,
            "default": default_text(option),
            "about": about(option),
        }
        for option in type_.options
    ]


def default_text(option: Option) -> str:
    if option.required:
        return "(required)"
    if option.default == LONG_MAX:
        return "no limit"
    return text_of(option.default, option.kind) or "-"


def about(option: Option) -> str:
    if option.idle:
        return f"No effect: {option.idle}."
    if option.forbidden:
        return f"Refused: {option.doc}"
    return f"{option.doc} Not in Flume." if option.ours else option.doc
