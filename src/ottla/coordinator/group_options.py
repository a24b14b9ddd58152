"""The options of new-protocol groups: a group's own config, or the broker's default for all groups.

A group's config that lies outside the broker's bounds, because those were changed since, counts as
the nearest bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.settings import BROKER_OPTIONS
from ottla.settings.group import GROUP_CONFIGS

if TYPE_CHECKING:
    from ottla.coordinator.topics import TopicsView
    from ottla.settings import Settings


class GroupOptions:
    """Reads options as they are now; both may change while the broker runs."""

    def __init__(self, settings: Callable[[], Settings], topics: TopicsView) -> None:
        self._settings = settings
        self._topics = topics

    def broker(self, name: str) -> int:
        """An option that a group cannot set for itself, by its whole name."""
        return self._settings().integer(name)

    def names(self, name: str) -> tuple[str, ...]:
        return self._settings().texts(name)

    def text(self, name: str) -> str:
        return self._settings().text(name)

    def of_group(self, group_id: str, name: str) -> int:
        """A number that a group may set for itself, by the name of the broker's option."""
        settings = self._settings()
        configs = self._topics.image.group_configs.get(group_id)
        if configs is None:
            return settings.integer(name)
        config = name.removeprefix("group.")
        own = configs.get(config)
        if own is None:
            return settings.integer(name)
        value = GROUP_CONFIGS[config].parse(own)
        assert isinstance(value, int)
        least, most = bounds(name)
        if least is not None:
            value = max(value, settings.integer(least))
        return value if most is None else min(value, settings.integer(most))


@lru_cache(maxsize=len(GROUP_CONFIGS))
def bounds(name: str) -> tuple[str | None, str | None]:
    """The broker options that bound what a group may set, where there are any."""
    _, protocol, rest = name.split(".", 2)
    least, most = (f"group.{protocol}.{end}.{rest}" for end in ("min", "max"))
    return least if least in BROKER_OPTIONS else None, most if most in BROKER_OPTIONS else None
