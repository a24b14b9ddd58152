"""RegisterBroker (key 10,002, Ottla's own): a broker that has started registers. Brokers only.

As Kafka's BrokerRegistration, but the broker is described by the record that the feed carries
(`BrokerRecord` of `wire/feed_records.py`), and the answer is that record as it was registered.
"""

from ..schema import Bytes, Int16, Int64, NullableString, RequestFor, Struct, tagged


class RegisterBrokerRequest(
    RequestFor["RegisterBrokerResponse"], key=10_002, versions=(0, 0), flexible=0
):
    broker: Bytes = b""
    previous_broker_epoch: Int64 = -1  # of its last registration, if it has stopped in order since
    highest_producer_id: Int64 = tagged(0, since=0, default=-1)  # on its disks
    # The levels that it understands: the record, which is in version 0, does not say.
    lowest_level: Int16 = tagged(1, since=0, default=1)
    highest_level: Int16 = tagged(2, since=0, default=1)


class RegisterBrokerResponse(Struct, key=10_002, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    error_message: NullableString = None
    broker: Bytes = b""
