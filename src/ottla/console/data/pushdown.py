"""What a statement's WHERE says of partition, offset and time, so that no more is read of a topic.

Only what surely holds is taken: comparisons of a column with a constant, joined by AND, in the
WHERE of the SELECT that names the topic. DuckDB still applies the whole WHERE, so a bound that is
too wide costs time and changes nothing; of several uses of a topic the widest bounds count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .statements import Statement, Tree, nodes

# Records may be later in the log than their time says: an upper bound of time is widened by this.
LATE_MS = 3_600_000
PARTITIONS_NAMED_MAX = 1_000
PLAIN_JOINS = {"REGULAR", "CROSS"}  # in others, fewer records make other pairs
CONSTANT_CLASSES = {"CONSTANT", "FUNCTION", "CAST"}
CONSTANT_FUNCTIONS = {
    "+", "-", "*", "/", "current_date", "current_timestamp", "date_trunc", "epoch_ms",
    "get_current_timestamp", "make_date", "make_timestamp", "make_timestamp_ms", "now", "to_days",
    "to_hours", "to_milliseconds", "to_minutes", "to_months", "to_seconds", "to_timestamp",
    "to_weeks", "to_years", "today", "trunc",
}  # fmt: skip
FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}
COLUMNS = ("partition", "offset", "timestamp")
INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What is read of a topic: from each lower bound to before each upper one."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    partitions: frozenset[int] | None = None

    def both(self, other: Limits) -> Limits:
        """What both allow."""
        partitions = self.partitions
        if other.partitions is not None:
            partitions = other.partitions if partitions is None else partitions & other.partitions
        return Limits(
            _pick(max, self.from_offset, other.from_offset),
            _pick(min, self.to_offset, other.to_offset),
            _pick(max, self.from_ms, other.from_ms),
            _pick(min, self.to_ms, other.to_ms),
            partitions,
        )

    def either(self, other: Limits) -> Limits:
        """What one of them allows."""
        partitions = None
        if self.partitions is not None and other.partitions is not None:
            partitions = self.partitions | other.partitions
        return Limits(
            _widest(min, self.from_offset, other.from_offset),
            _widest(max, self.to_offset, other.to_offset),
            _widest(min, self.from_ms, other.from_ms),
            _widest(max, self.to_ms, other.to_ms),
            partitions,
        )


ALL = Limits()
Chosen = Callable[[int, int], int]


def _pick(choose: Chosen, one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def _widest(choose: Chosen, one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else choose(one, other)


def limits_in(statement: Statement, connection: Any) -> dict[str, Limits]:
    """For each topic that the statement names; `connection` computes constants."""
    found: dict[str, list[Limits]] = {name: [] for name in statement.tables}
    for node in nodes(statement.tree):
        if node.get("type") == "SELECT_NODE" and node.get("sample") is None:
            for name, limits in _of_select(node, connection):
                if name in found:
                    found[name].append(limits)
    wanted: dict[str, Limits] = {}
    for name, each in found.items():
        limits = each[0] if len(each) == statement.tables.count(name) else ALL
        for other in each[1:]:
            limits = limits.either(other)
        wanted[name] = limits
    return wanted


def _of_select(node: Tree, connection: Any) -> Iterator[tuple[str, Limits]]:
    """The topics that this SELECT names itself, each time with its limits."""
    sources = list(_sources(node.get("from_table")))
    plain = all(each is not None for each in sources)
    terms = list(_terms(node.get("where_clause"))) if plain else []
    for source in sources:
        if source is None or source.get("type") != "BASE_TABLE":
            continue
        limits = ALL
        usable = source.get("sample") is None and not source.get("column_name_alias")
        name = str(source["table_name"])
        called = str(source.get("alias") or name).lower()
        callers = [
            str(each.get("alias") or each.get("table_name") or "").lower()
            for each in sources
            if each is not None
        ]
        if usable and callers.count(called) == 1:
            for term in terms:
                limits = limits.both(_limits(term, called, len(sources) == 1, connection))
        yield name, limits


def _sources(tree: Any) -> Iterator[Tree | None]:
    """What stands behind FROM, joins taken apart; None for a join in which fewer records could
    make other pairs."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict):
            continue
        if each.get("type") == "JOIN":
            if each.get("ref_type") not in PLAIN_JOINS:
                yield None
            waiting += [each.get("left"), each.get("right")]
        else:
            yield each


def _terms(tree: Any) -> Iterator[Tree]:
    """The conditions that must all hold."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict):
            continue
        if each.get("type") == "CONJUNCTION_AND":
            waiting += each.get("children", ())
        else:
            yield each


def _limits(term: Tree, called: str, alone: bool, connection: Any) -> Limits:
    """What one condition says of the source of this name."""

    def column(tree: Any) -> str | None:
        if not isinstance(tree, dict) or tree.get("class") != "COLUMN_REF":
            return None
        names = [str(each).lower() for each in tree.get("column_names", ())]
        if (len(names) == 1 and alone) or (len(names) == 2 and names[0] == called):
            return names[-1] if names[-1] in COLUMNS else None
        return None

    kind = str(term.get("type"))
    if kind in FLIPPED:
        for one, other, how in (
            (term.get("left"), term.get("right"), kind),
            (term.get("right"), term.get("left"), FLIPPED[kind]),
        ):
            name = column(one)
            if name is not None:
                return _compared(name, how, _value(name, other, connection))
    elif kind == "COMPARE_BETWEEN":
        name = column(term.get("input"))
        if name is not None:
            low = _value(name, term.get("lower"), connection)
            high = _value(name, term.get("upper"), connection)
            return _compared(name, "COMPARE_GREATERTHANOREQUALTO", low).both(
                _compared(name, "COMPARE_LESSTHANOREQUALTO", high)
            )
    elif kind == "COMPARE_IN":
        first, *rest = term.get("children") or [None]
        name = column(first)
        if name is not None and rest and len(rest) <= PARTITIONS_NAMED_MAX:
            return _one_of(name, [_value(name, each, connection) for each in rest])
    return ALL


def _one_of(name: str, values: Iterable[int | None]) -> Limits:
    limits: Limits | None = None
    for value in values:
        each = _compared(name, "COMPARE_EQUAL", value)
        limits = each if limits is None else limits.either(each)
    return limits or ALL


def _compared(name: str, how: str, value: int | None) -> Limits:
    """Times are whole milliseconds here, rounded down: so `>` is taken as `>=`."""
    if value is None:
        return ALL
    equal = how == "COMPARE_EQUAL"
    if name == "partition":
        return Limits(partitions=frozenset({value})) if equal else ALL
    low = value if equal or "GREATER" in how else None
    high = value + 1 if equal or "LESS" in how else None
    if name == "offset":
        if how == "COMPARE_GREATERTHAN":
            low = value + 1
        if how == "COMPARE_LESSTHAN":
            high = value
        return Limits(from_offset=low, to_offset=high)
    return Limits(from_ms=low, to_ms=None if high is None else high + LATE_MS)


def _value(name: str, tree: Any, connection: Any) -> int | None:
    """A constant: a whole number, or a time in milliseconds; None where it is none."""
    if not _is_constant(tree):
        return None
    select = {
        "statements": [{"node": {**_EMPTY_SELECT, "select_list": [{**tree, "alias": ""}]}}],
        "error": False,
    }
    import duckdb

    try:
        [[text]] = connection.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(select)]
        ).fetchall()
        if name == "timestamp":
            [[found]] = connection.execute(
                f"SELECT epoch_us(CAST(({text}) AS TIMESTAMP))"
            ).fetchall()
            return None if found is None else int(found) // 1000
        [[kind, found]] = connection.execute(
            f"SELECT typeof(x), x FROM ({text}) AS t(x)"
        ).fetchall()
    except duckdb.Error:
        return None
    return int(found) if kind in INTEGERS and found is not None else None


def _is_constant(tree: Any) -> bool:
    if not isinstance(tree, dict):
        return False
    for node in nodes(tree):
        kind = node.get("class")
        if kind is not None and kind not in (*CONSTANT_CLASSES, "TYPE"):
            return False
        if kind == "FUNCTION" and str(node["function_name"]).lower() not in CONSTANT_FUNCTIONS:
            return False
        if node.get("type") in ("SUBQUERY", "BASE_TABLE", "TABLE_FUNCTION"):
            return False
    return True


_EMPTY_SELECT: Tree = {
    "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [],
    "from_table": {"type": "EMPTY", "alias": "", "sample": None},
    "where_clause": None, "group_expressions": [], "group_sets": [],
    "aggregate_handling": "STANDARD_HANDLING", "having": None, "sample": None, "qualify": None,
}  # fmt: skip
