"""kafka-configs.sh for users, client ids and addresses: their quotas (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .user_configs import MECHANISMS, alter_credentials, describe_credentials

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ClientQuotaEntity

# By kind: the type of entity, and what Kafka's tool calls it.
TYPES = {
    "users": ("user", "user-principal"),
    "clients": ("client-id", "client-id"),
    "ips": ("ip", "ip"),
}
OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
OF_ADDRESSES = ("connection_creation_rate",)

# A kind and a name: None is any, an empty one the default.
Entity = tuple[str, str | None]


def describe(admin: Admin, entities: Sequence[Entity]) -> None:
    """Quotas, and of users alone their credentials too."""
    for entity, quotas in found(admin, entities).items():
        listed = ", ".join(f"{key}={java_number(value)}" for key, value in quotas.items())
        print(f"Quota configs for {shown(entity)} are {listed}")
    kinds = [kind for kind, _ in entities]
    if kinds == ["users"] and entities[0][1] != "":
        describe_credentials(admin, entities[0][1])


def alter(
    admin: Admin, entities: Sequence[Entity], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Raises KafkaError, and ValueError for what cannot be."""
    from ottla.client.admin import ClientQuotaAlteration
    from ottla.client.errors import KafkaError

    check_names([kind for kind, _ in entities], added, deleted)
    names = [*added, *deleted]
    if any(name in MECHANISMS for name in names):
        if any(name == "" for _, name in entities):
            raise ValueError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
                "Credentials using --bootstrap-server."
            )
        if not all(name in MECHANISMS for name in names):
            raise ValueError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
                "using --bootstrap-server."
            )
        alter_credentials(admin, entities[0][1] or "", added, deleted)
        return
    old = next(iter(found(admin, entities).values()), {})
    unknown = [each for each in deleted if each not in old]
    if unknown:
        raise ValueError(f"Invalid config(s): {','.join(unknown)}")
    changes: dict[str, float | None] = {key: number(key, text) for key, text in added.items()}
    changes |= dict.fromkeys(deleted)
    entity = {TYPES[kind][0]: name or None for kind, name in entities}
    for error in admin.alter_client_quotas([ClientQuotaAlteration(entity, changes)]).values():
        if error is not None:
            raise KafkaError(error)


def check_names(kinds: Sequence[str], added: Iterable[str], deleted: Iterable[str]) -> None:
    if kinds[0] == "ips":
        wrong = [each for each in (*added, *deleted) if each not in OF_ADDRESSES]
        if wrong:
            raise ValueError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(wrong)}"
            )
        return
    alone = list(kinds) == ["users"]
    allowed = (*OF_CLIENTS, *MECHANISMS) if alone else OF_CLIENTS
    what = "quota and SCRAM credential" if alone else "quota"
    kind = "users" if alone else "clients"
    for names, done in ((added, "added"), (deleted, "deleted")):
        wrong = [each for each in names if each not in allowed]
        if wrong:
            raise ValueError(
                f"Only {what} configs can be {done} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: {', '.join(wrong)}"
            )


def found(admin: Admin, entities: Sequence[Entity]) -> dict[ClientQuotaEntity, dict[str, float]]:
    from ottla.client.admin import ClientQuotaFilter, ClientQuotaFilterComponent

    components = []
    for kind, name in entities:
        entity_type = TYPES[kind][0]
        if name is None:
            components.append(ClientQuotaFilterComponent.of_entity_type(entity_type))
        elif name == "":
            components.append(ClientQuotaFilterComponent.of_default_entity(entity_type))
        else:
            components.append(ClientQuotaFilterComponent.of_entity(entity_type, name))
    return admin.describe_client_quotas(ClientQuotaFilter.contains_only(components))


def shown(entity: ClientQuotaEntity) -> str:
    parts = []
    for entity_type, title in TYPES.values():
        if entity_type in entity.entries:
            name = entity.entries[entity_type]
            parts.append(f"the default {title}" if name is None else f"{title} '{name}'")
    return ", ".join(parts)


def number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Cannot parse quota configuration value for {key}: {text}") from None


def java_number(value: float) -> str:
    """As Java writes a double: 1024.0, 1.0E7."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value:.17e}".partition("e")
    shortest = repr(value / 10.0 ** int(exponent))
    mantissa = shortest if float(f"{shortest}e{exponent}") == value else digits.rstrip("0")
    return f"{mantissa}E{int(exponent)}"
