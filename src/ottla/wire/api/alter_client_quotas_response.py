"""The response of AlterClientQuotas, whose parts have the names that Kafka gives the request's."""

from ..schema import Int16, Int32, NullableString, String, Struct


class EntityData(Struct):
    entity_type: String = ""
    entity_name: NullableString = ""


class EntryData(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(Struct, key=49, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    entries: list[EntryData] = []
