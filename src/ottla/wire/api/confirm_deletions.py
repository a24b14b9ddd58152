"""ConfirmDeletions (key 10,003, Ottla's own): a broker has removed deleted topics. Brokers only."""

from ..schema import Int16, Int32, Int64, RequestFor, Struct, Uuid


class ConfirmDeletionsRequest(
    RequestFor["ConfirmDeletionsResponse"], key=10_003, versions=(0, 0), flexible=0
):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topic_ids: list[Uuid] = []


class ConfirmDeletionsResponse(Struct, key=10_003, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
