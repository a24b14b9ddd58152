"""Client quotas (KIP-546), in Java's words with Python's underscores: kafka-python has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import IllegalArgumentError, raise_for
from .base import AdminBase

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class ClientQuotaEntity:
    """Whom quotas are for: `ClientQuotaEntity({"user": "alice"})`; the name None is the default."""

    USER = USER
    CLIENT_ID = CLIENT_ID
    IP = IP

    __slots__ = ("entries",)

    def __init__(self, entries: Mapping[str, str | None]) -> None:
        self.entries = dict(entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientQuotaEntity) and other.entries == self.entries

    def __hash__(self) -> int:
        return hash(frozenset(self.entries.items()))

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({self.entries})"


class ClientQuotaAlteration:
    """Values that an entity is to have; None removes a quota."""

    def __init__(
        self,
        entity: ClientQuotaEntity | Mapping[str, str | None],
        ops: Mapping[str, float | None],
    ) -> None:
        self.entity = entity if isinstance(entity, ClientQuotaEntity) else ClientQuotaEntity(entity)
        self.ops = dict(ops)

    def __repr__(self) -> str:
        return f"ClientQuotaAlteration({self.entity}, {self.ops})"


class ClientQuotaFilterComponent:
    """What is asked of one type of an entity."""

    def __init__(self, entity_type: str, match_type: int, match: str | None = None) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match

    @classmethod
    def of_entity(cls, entity_type: str, entity_name: str) -> ClientQuotaFilterComponent:
        return cls(entity_type, EXACT, entity_name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> ClientQuotaFilterComponent:
        return cls(entity_type, DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> ClientQuotaFilterComponent:
        """Any of the type, the default too."""
        return cls(entity_type, SPECIFIED)

    def __repr__(self) -> str:
        return f"ClientQuotaFilterComponent({self.entity_type}, {self.match_type}, {self.match!r})"


class ClientQuotaFilter:
    """Which quotas are asked for; `strict`: of entities that have these types and no other."""

    def __init__(
        self, components: Iterable[ClientQuotaFilterComponent], strict: bool = False
    ) -> None:
        self.components = list(components)
        self.strict = strict

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> ClientQuotaFilter:
        return cls(components, False)

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> ClientQuotaFilter:
        return cls(components, True)

    @classmethod
    def all(cls) -> ClientQuotaFilter:
        return cls((), False)

    def __repr__(self) -> str:
        return f"ClientQuotaFilter({self.components}, strict={self.strict})"


class Quotas(AdminBase):
    """The part of the admin that says what clients may use."""

    def describe_client_quotas(
        self, matching: ClientQuotaFilter | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas that match a filter, or all; by entity."""
        from ottla.wire.api.describe_client_quotas import (
            ComponentData,
            DescribeClientQuotasRequest,
        )

        wanted = matching or ClientQuotaFilter.all()
        answer = self._ask(
            DescribeClientQuotasRequest(
                components=[
                    ComponentData(
                        entity_type=each.entity_type, match_type=each.match_type, match=each.match
                    )
                    for each in wanted.components
                ],
                strict=wanted.strict,
            ),
            check=lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity}): {
                each.key: each.value for each in entry.values
            }
            for entry in answer.entries or ()
        }

    def alter_client_quotas(
        self, entries: Iterable[ClientQuotaAlteration], validate_only: bool = False
    ) -> dict[ClientQuotaEntity, str | None]:
        """Set and remove quotas; by entity what went wrong, or None."""
        from ottla.wire.api.alter_client_quotas import (
            AlterClientQuotasRequest,
            EntityData,
            EntryData,
            OpData,
        )

        request = AlterClientQuotasRequest(validate_only=validate_only)
        for each in entries:
            if not isinstance(each, ClientQuotaAlteration):
                raise IllegalArgumentError(
                    f"entries must be ClientQuotaAlteration, got {type(each).__name__}"
                )
            request.entries.append(
                EntryData(
                    entity=[
                        EntityData(entity_type=kind, entity_name=name)
                        for kind, name in each.entity.entries.items()
                    ],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in each.ops.items()
                    ],
                )
            )
        answer = self._ask_controller(request, lambda got: None)
        return {
            ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity}): (
                entry.error_message if entry.error_code else None
            )
            for entry in answer.entries
        }
