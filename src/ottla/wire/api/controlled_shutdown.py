"""ControlledShutdown (key 10,005, Ottla's own): a broker wants to stop. Brokers only.

As Kafka's BrokerHeartbeat with WantShutDown: the controller moves leadership away, and the broker
asks again while other brokers have not applied that.
"""

from ..schema import Int16, Int32, Int64, RequestFor, Struct


class ControlledShutdownRequest(
    RequestFor["ControlledShutdownResponse"], key=10_005, versions=(0, 0), flexible=0
):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class ControlledShutdownResponse(Struct, key=10_005, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    behind: Int32 = 0  # active brokers that have not applied what this has changed
