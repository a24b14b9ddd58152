"""Client quotas (KIP-546) in words: whom they are for, which there are, and their units."""

from __future__ import annotations

from collections.abc import Mapping

ENTITY_TYPES = {"user": "user", "client-id": "client id", "ip": "address"}
OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
OF_ADDRESSES = ("connection_creation_rate",)
QUOTAS = (*OF_CLIENTS, *OF_ADDRESSES)
UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
DEFAULT = None  # the name of an entity: all of the type that have none of their own


def whom(entity: Mapping[str, str | None]) -> str:
    """`user alice with the default client id`, as Kafka's tool calls them."""
    parts = []
    for kind, words in ENTITY_TYPES.items():
        if kind in entity:
            name = entity[kind]
            parts.append(f"the default {words}" if name is DEFAULT else f"{words} {name}")
    return " with ".join(parts)


def amount(quota: str, value: float | None) -> str:
    return "none" if value is None else f"{value:,.12g} {UNITS.get(quota, '')}".rstrip()
