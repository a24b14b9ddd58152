"""What a case is: a function that speaks to one broker; the runner gives it to both.

    @case("Fetch", since=13)
    def unknown_topic_id(peer: Peer, version: int) -> None:
        peer.ask("Fetch", version, {...})

It is run for every stable version of its API, each time with topic names of its own, so cases need
no order and can run side by side.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from tests.apache import messages
from tests.differential import cases
from tests.differential.peer import Peer

Body = Callable[[Peer, int], None]


@dataclass(frozen=True)
class Case:
    """One scenario in one version of an API."""

    api: str
    name: str
    version: int
    body: Body

    @property
    def id(self) -> str:
        return f"{self.api}-{self.name}-v{self.version}"


ALL: list[Case] = []


def case(
    api: str, *, since: int = -1, until: int = 32767, only: tuple[int, ...] = ()
) -> Callable[[Body], Body]:
    """Register a function for every version of the API within the bounds."""

    def register(body: Body) -> Body:
        ALL.extend(
            Case(api, body.__name__, version, body)
            for version in messages.versions(api)
            if since <= version <= until and (not only or version in only)
        )
        return body

    return register


def all_cases() -> list[Case]:
    """Every registered case, in the order of the files.

    `OTTLA_DIFFERENTIAL_CASES=fetch,produce` takes these files alone.
    """
    only = os.environ.get("OTTLA_DIFFERENTIAL_CASES")
    for module in pkgutil.iter_modules(cases.__path__):
        if only and module.name not in only.split(","):
            continue
        importlib.import_module(f"{cases.__name__}.{module.name}")
    seen = {each.id for each in ALL}
    assert len(seen) == len(ALL), "two cases of one name"
    return ALL
