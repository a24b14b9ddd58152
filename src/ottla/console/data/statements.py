"""A statement that a user wrote, as DuckDB's own parser sees it: exactly one SELECT, and the topics
and columns that it names.

The tree is searched whole, wherever DuckDB may put a table (joins, sub-queries, CTEs, set
operations): what is not known to be harmless is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .work import Problem

STATEMENT_CHARACTERS_MAX = 20_000
TREE_NODES_MAX = 20_000
TABLES_MAX = 20
TREE_DEPTH_MAX = 400

Tree = dict[str, Any]

QUERY_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
TABLE_FUNCTIONS = {"generate_series", "json_each", "json_tree", "range", "unnest"}
# They wait, write, or tell of the process; none computes anything from records.
REFUSED_FUNCTIONS = {
    "current_setting", "currval", "getvariable", "nextval", "pg_sleep", "set_config", "setseed",
    "setval", "sleep_ms", "write_log",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    tree: Tree
    tables: tuple[str, ...]  # as often as they are named
    names: frozenset[str]  # every word of the tree in lower case: columns among them
    star: bool  # all columns are asked for, somewhere
    with_names: frozenset[str]  # of CTEs


def parsed(connection: Any, text: str) -> Statement:
    """The statement; Problem with a sentence if it is none that may run."""
    import duckdb

    if len(text) > STATEMENT_CHARACTERS_MAX:
        raise Problem(f"A statement has at most {STATEMENT_CHARACTERS_MAX} characters.")
    if "\x00" in text:
        raise Problem("A statement has no character 0.")
    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise Problem(str(error)) from None
    if len(statements) != 1:
        raise Problem(f"Exactly one SELECT statement may run; here are {len(statements)}.")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        raise Problem(f"Only a SELECT statement may run, and this is another kind ({kind}).")
    serialized = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0]
    try:
        tree = json.loads(serialized)
    except RecursionError:
        raise Problem("The statement is nested too deeply.") from None
    if tree.get("error"):
        raise Problem(str(tree.get("error_message", "DuckDB cannot read the statement.")))
    if len(tree["statements"]) != 1:
        raise Problem("Exactly one SELECT statement may run.")
    return examined(text, tree)


def examined(text: str, tree: Tree) -> Statement:
    with_names = {
        entry["key"].lower()
        for node in nodes(tree)
        for entry in (node.get("cte_map") or {}).get("map", ())
    } | {
        str(node["cte_name"]).lower()
        for node in nodes(tree)
        if str(node.get("type")) in QUERY_NODES and "cte_name" in node
    }
    tables: list[str] = []
    names: set[str] = set()
    star = False
    for node in nodes(tree):
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in QUERY_NODES:
            raise Problem("Only SELECT may stand in a statement, nothing that changes data.")
        if kind == "TABLE_FUNCTION":
            name = str((node.get("function") or {}).get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Problem(
                    f"The table function {name!r} may not be used here; there are "
                    f"{', '.join(sorted(TABLE_FUNCTIONS))}."
                )
        elif kind == "BASE_TABLE":
            name = _table_of(node)
            if name.lower() not in with_names:
                tables.append(name)
        elif kind == "SHOW_REF":
            star = True
        if "function_name" in node and str(node["function_name"]).lower() in REFUSED_FUNCTIONS:
            raise Problem(f"The function {node['function_name']} may not be used here.")
        if node.get("class") == "STAR" or node.get("ref_type") == "NATURAL":
            star = True
        names.update(each.lower() for each in _words(node))
    if len(tables) > TABLES_MAX:
        raise Problem(f"A statement names at most {TABLES_MAX} topics.")
    by_lower: dict[str, str] = {}
    for name in tables:
        other = by_lower.setdefault(name.lower(), name)
        if other != name:
            raise Problem(
                f"{other!r} and {name!r} differ only in upper and lower case, which DuckDB does "
                "not distinguish in the names of tables: ask for one at a time."
            )
    return Statement(text, tree, tuple(tables), frozenset(names), star, frozenset(with_names))


def _table_of(node: Tree) -> str:
    path = (node.get("qualified_name") or {}).get("path") or [node["table_name"]]
    if len(path) != 1 or node.get("schema_name") or node.get("catalog_name"):
        parts = [node.get("catalog_name"), node.get("schema_name"), node.get("table_name")]
        whole = ".".join(each for each in parts if each)
        raise Problem(
            f"{whole}: there are no schemas; a topic whose name has a dot stands in double quotes: "
            f'"{whole}"'
        )
    return str(node["table_name"])


def nodes(tree: Any) -> Iterator[Tree]:
    """Every object of a tree; Problem for one that is too large or too deep."""
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    seen = 0
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict):
            seen += 1
            if seen > TREE_NODES_MAX or depth > TREE_DEPTH_MAX:
                raise Problem("The statement is too long or nested too deeply.")
            yield each
            waiting += [(inner, depth + 1) for inner in each.values()]
        elif isinstance(each, list):
            waiting += [(inner, depth) for inner in each]


def _words(node: Tree) -> Iterator[str]:
    for each in node.values():
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            yield from (word for word in each if isinstance(word, str))
