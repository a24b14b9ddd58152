"""Which of the two group protocols a consumer speaks."""

from __future__ import annotations

from collections.abc import Callable

from ..network.cluster_client import ConsumerClient
from .broker_assignment import BrokerAssignment
from .group_membership import Group
from .rebalance import Rebalance
from .reconciliation import Reconciliation
from .subscription import Subscription

Membership = Group | BrokerAssignment


def membership(
    client: ConsumerClient, subscription: Subscription, changed: Callable[[], object]
) -> Membership:
    """The member in the background thread, as `group_protocol` says."""
    by_broker = client.config["group_protocol"] == "consumer"
    return (BrokerAssignment if by_broker else Group)(client, subscription, changed)


def handover(
    client: ConsumerClient,
    member: Membership,
    subscription: Subscription,
    save: Callable[[], object],
    wake: Callable[[], object],
) -> Rebalance | Reconciliation:
    """Its part in the caller's thread."""
    if isinstance(member, Group):
        return Rebalance(client, member, subscription, save, wake)
    return Reconciliation(client, member, subscription, save, wake)
