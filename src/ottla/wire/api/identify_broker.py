"""IdentifyBroker (key 10,004, Ottla's own): which process answers at an address. Brokers only."""

from ..schema import NO_UUID, Int16, Int32, Int64, RequestFor, Struct, Uuid


class IdentifyBrokerRequest(
    RequestFor["IdentifyBrokerResponse"], key=10_004, versions=(0, 0), flexible=0
):
    pass


class IdentifyBrokerResponse(Struct, key=10_004, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    broker_id: Int32 = 0
    incarnation_id: Uuid = NO_UUID
    broker_epoch: Int64 = -1
