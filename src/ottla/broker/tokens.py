"""Delegation tokens at a broker: who may ask for them, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.security.principal import ANONYMOUS
from ottla.security.tokens import TokenOptions

if TYPE_CHECKING:
    from ottla.broker.context import Peer
    from ottla.settings import Settings


def token_options(settings: Settings) -> TokenOptions:
    return TokenOptions(
        str(settings.values["delegation.token.secret.key"] or ""),
        settings.integer("delegation.token.max.lifetime.ms"),
        settings.integer("delegation.token.expiry.time.ms"),
        settings.integer("delegation.token.expiry.check.interval.ms"),
    )


def may_ask(peer: Peer, settings: Settings) -> bool:
    """Whether a connection has a login of its own: a token gets nobody another token."""
    protocol = next(
        (each.protocol for each in settings.listeners if each.name == peer.listener_name), ""
    )
    if peer.by_token or protocol in ("", "PLAINTEXT"):
        return False
    return protocol != "SSL" or peer.principal != ANONYMOUS
