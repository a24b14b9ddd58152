"""Set and remove what clients may use: quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from typing import Any

from ottla.client.admin import ClientQuotaAlteration, ClientQuotaEntity

from ..acting import Action, Asking, Outcome, Preview
from ..forms import FormError
from ..quota_words import ENTITY_TYPES, OF_ADDRESSES, OF_CLIENTS, QUOTAS, amount, whom
from .security import NAME_CHARACTERS_MAX, OfSecurity

FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}  # by the type of entity


class OfQuota(OfSecurity):
    tab = "quotas"

    def entity(self, asking: Asking) -> ClientQuotaEntity:
        """Of each type a name, the default, or nothing."""
        entries: dict[str, str | None] = {}
        for kind, field in FIELDS.items():
            name = asking.fields.one(field)
            default = asking.fields.one(f"{field}_default").lower() in ("1", "true")
            if name and default:
                raise FormError(f"{ENTITY_TYPES[kind]}: a name or the default, not both")
            if len(name) > NAME_CHARACTERS_MAX:
                raise FormError(f"{ENTITY_TYPES[kind]}: at most {NAME_CHARACTERS_MAX} characters")
            if name or default:
                entries[kind] = name or None
        if not entries:
            raise FormError("user, client id or address: one of them must be given")
        if "ip" in entries and len(entries) > 1:
            raise FormError("address: quotas of addresses are for no user or client id")
        return ClientQuotaEntity(entries)

    def quota(self, asking: Asking, entity: ClientQuotaEntity) -> str:
        quota = asking.fields.one("quota")
        possible = OF_ADDRESSES if "ip" in entity.entries else OF_CLIENTS
        if quota not in possible:
            about = whom(entity.entries)
            raise FormError(f"quota: of {about} one of {', '.join(possible)} (got {quota[:40]!r})")
        return quota

    def sent(self, asking: Asking, entity: ClientQuotaEntity) -> dict[str, object]:
        sent: dict[str, object] = {}
        for kind, name in entity.entries.items():
            field = FIELDS[kind]
            sent |= {f"{field}_default": "1"} if name is None else {field: name}
        return sent

    def target(self, asking: Asking) -> str:
        try:
            return whom(self.entity(asking).entries)
        except FormError:
            return asking.fields.one("user")

    def now(self, asking: Asking, entity: ClientQuotaEntity, quota: str) -> float | None:
        return asking.admin.describe_client_quotas().get(entity, {}).get(quota)

    def alter(
        self,
        asking: Asking,
        entity: ClientQuotaEntity,
        quota: str,
        value: float | None,
        validate_only: bool = False,
    ) -> None:
        change = ClientQuotaAlteration(entity, {quota: value})
        outcomes = asking.admin.alter_client_quotas([change], validate_only=validate_only)
        for problem in outcomes.values():
            if problem is not None:
                raise FormError(problem)


class SetQuota(OfQuota):
    name = "set-quota"
    template = "quota.html"

    def form_context(self, asking: Asking) -> dict[str, Any]:
        return {"quotas": QUOTAS}

    def value(self, asking: Asking) -> float:
        text = asking.fields.one("value")
        try:
            value = float(text.replace(",", "").replace("_", ""))
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise FormError(f"value: a number above 0 (got {text[:40]!r})")
        return value

    def plan(self, asking: Asking) -> Preview:
        entity, value = self.entity(asking), self.value(asking)
        quota, about = self.quota(asking, entity), whom(entity.entries)
        self.alter(asking, entity, quota, value, validate_only=True)
        before = self.now(asking, entity, quota)
        return Preview(
            "Set a quota",
            "Set",
            [f"The {quota} of {about} is {amount(quota, value)} then, on each broker."],
            ["Whoever is above it is made to wait; nothing is refused but new connections."],
            ("Quota", "Now", "Then"),
            [(quota, amount(quota, before), amount(quota, value))],
            {**self.sent(asking, entity), "quota": quota, "value": repr(value)},
        )

    def do(self, asking: Asking) -> Outcome:
        entity, value = self.entity(asking), self.value(asking)
        quota, about = self.quota(asking, entity), whom(entity.entries)
        self.alter(asking, entity, quota, value)
        detail = f"{quota} {amount(quota, value)}"
        return Outcome(f"The {quota} of {about} is {amount(quota, value)}.", detail=detail)


class RemoveQuota(OfQuota):
    name = "remove-quota"

    def quota(self, asking: Asking, entity: ClientQuotaEntity) -> str:
        return asking.fields.one("quota")[:NAME_CHARACTERS_MAX]  # also one of a newer cluster

    def plan(self, asking: Asking) -> Preview:
        entity = self.entity(asking)
        quota, about = self.quota(asking, entity), whom(entity.entries)
        before = self.now(asking, entity, quota)
        if before is None:
            raise FormError(f"There is no {quota} of {about} any more.")
        return Preview(
            "Remove a quota",
            "Remove",
            [f"The {quota} of {about} is removed."],
            ["One of a wider entity holds then, else none."],
            ("Quota", "Now", "Then"),
            [(quota, amount(quota, before), "none")],
            {**self.sent(asking, entity), "quota": quota},
        )

    def do(self, asking: Asking) -> Outcome:
        entity = self.entity(asking)
        quota, about = self.quota(asking, entity), whom(entity.entries)
        before = self.now(asking, entity, quota)
        if before is None:
            raise FormError(f"There is no {quota} of {about} any more.")
        self.alter(asking, entity, quota, None)
        detail = f"{quota}, which was {amount(quota, before)}"
        return Outcome(f"The {quota} of {about} was removed.", detail=detail)


ACTIONS: tuple[Action, ...] = (SetQuota(), RemoveQuota())
