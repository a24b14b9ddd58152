"""All addresses of this package."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ..context import Console
from . import events, series
from .acting import Action, route_of
from .actions import configs as config_actions
from .actions import groups as group_actions
from .actions import placement
from .actions import quotas as quota_actions
from .actions import security as security_actions
from .actions import topics as topic_actions
from .actions import transactions as transaction_actions
from .pages import (
    brokers,
    groups,
    overview,
    pipelines,
    reassignments,
    security,
    topic,
    topics,
    transactions,
)

ACTIONS: tuple[Action, ...] = (
    *topic_actions.ACTIONS,
    *config_actions.ACTIONS,
    *group_actions.ACTIONS,
    *transaction_actions.ACTIONS,
    *placement.ACTIONS,
    *security_actions.ACTIONS,
    *quota_actions.ACTIONS,
)


def routes(console: Console) -> list[BaseRoute]:
    return [
        *overview.routes,
        *brokers.routes,
        *topics.routes,
        *topic.routes,
        *groups.routes,
        *transactions.routes,
        *reassignments.routes,
        *pipelines.routes,
        *security.routes,
        *series.routes,
        *events.routes,
        *map(route_of, ACTIONS),
    ]
