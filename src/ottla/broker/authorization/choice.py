"""Whether there is an authorizer, which most brokers need not even import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rules
    from ottla.broker.broker import Broker


def rules_of(broker: Broker) -> Rules | None:
    """What the broker's settings say about who may do what; None: everybody everything."""
    options = broker.settings.authorization
    if options is None:
        return None
    from ottla.broker.authorization.rights import Rules

    return Rules(broker, options)
