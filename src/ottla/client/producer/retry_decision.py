"""What to do with a batch that a broker refused, or that got no answer.

Retry what Kafka says can be retried. Under idempotence a wrong sequence number is looked at
closely: behind another batch that failed it is a mere consequence, and the batch goes again; at the
head of its queue the broker has lost the producer's state, and the queue goes on under a higher
epoch (KIP-360), or the transaction must be aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode

from ..errors import BrokerResponseError, KafkaError, error_for
from .batch_encoding import intact

if TYPE_CHECKING:
    from ..typed_config import ProducerConfig
    from .accumulator import Batch
    from .idempotence import Identity

SEQUENCE_TROUBLE = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


# The broker has none of the batch: had it been written before, it would have said duplicate.
SURELY_NOT_WRITTEN = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
MAY_BE_WRITTEN = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Decision(NamedTuple):
    """`action` is succeed, retry, split or fail; `bump` asks for a higher epoch first."""

    action: str
    error: KafkaError
    bump: bool = False


def decide(
    batch: Batch, error: KafkaError, identity: Identity | None, config: ProducerConfig
) -> Decision:
    """What comes next for this batch."""
    code = error.errno if isinstance(error, BrokerResponseError) else None
    if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Decision("succeed", error)
    if code is None or code in MAY_BE_WRITTEN:
        batch.ambiguous = True
    elif code in SURELY_NOT_WRITTEN:
        batch.ambiguous = False
    if code == ErrorCode.CORRUPT_MESSAGE and not intact(batch):
        # It did not break on the way to the broker, but before it came here.
        return Decision("fail", error_for(code, "the batch was damaged before it was sent"))
    if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
        return Decision("split", error)
    may_retry = batch.attempts <= config["retries"]
    if identity is not None and code in SEQUENCE_TROUBLE:
        behind = any(identity.earlier(other, batch) for other in batch.queue.in_flight)
        behind = behind or any(
            other.sequence >= 0 and identity.earlier(other, batch) for other in batch.queue.closed
        )
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and behind and may_retry:
            return Decision("retry", error)
        if not identity.transactional and may_retry:
            return Decision("retry", error, bump=True)
        return Decision("fail", error)
    if error.retriable and may_retry:
        return Decision("retry", error)
    return Decision("fail", error)
