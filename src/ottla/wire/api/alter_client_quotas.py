"""AlterClientQuotas (key 49): set and remove the quotas of users, client ids and addresses."""

from ..schema import Bool, Float64, NullableString, RequestFor, String, Struct
from .alter_client_quotas_response import AlterClientQuotasResponse as AlterClientQuotasResponse


class EntityData(Struct):
    entity_type: String = ""
    entity_name: NullableString = ""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(
    RequestFor["AlterClientQuotasResponse"], key=49, versions=(0, 1), flexible=1
):
    entries: list[EntryData] = []
    validate_only: Bool = False
