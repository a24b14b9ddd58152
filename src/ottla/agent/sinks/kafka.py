"""`KafkaSink`: events become records; with exactly once their positions are in the transaction.

A position is a record of the compacted topic `__ottla_agent_positions`: the key names the instance,
the agent, the sink and the stream, the value says where the stream continues. Data and positions
are committed together, so what a reader sees as committed is what a restart does not send again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.errors import ProducerFencedError
from ottla.client.producer.producer import Producer

from ..events import EventBatch, Position
from ..positions import PositionTopic, SinkIdentity


class KafkaSink:
    def __init__(
        self,
        name: str,
        topic: str,
        producer_options: Mapping[str, object],
        identity: SinkIdentity | None,
    ) -> None:
        """With an identity delivery is exactly once; without, at least once."""
        self.name = name
        self.topic = topic
        self.keeps_positions = identity is not None
        self._options = dict(producer_options)
        self._identity = identity
        self._positions: PositionTopic | None = None
        self._producer: Producer[bytes, bytes] | None = None

    def start(self) -> Mapping[str, Position]:
        if self._identity is None:
            self._producer = Producer(self._options)
            return {}
        self._options["transactional.id"] = self._identity.transactional_id
        self._producer = Producer(self._options)
        self._positions = PositionTopic(self._options, self._identity)
        self._positions.ensure_exists()
        # First the fence, then the positions: nobody else commits one after they were read.
        self._producer.init_transactions()
        return self._positions.read()

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        producer = self._producer
        assert producer is not None
        if self._positions is None:
            self._send(producer, batches)
            return
        producer.begin_transaction()
        try:
            self._send(producer, batches)
            latest = {batch.position.stream: batch.position for batch in batches if batch.position}
            for position in latest.values():
                self._positions.send(producer, position)
            producer.commit_transaction()
        except ProducerFencedError:
            raise
        except BaseException:
            producer.abort_transaction()
            raise

    def _send(self, producer: Producer[bytes, bytes], batches: Sequence[EventBatch]) -> None:
        futures = []
        for batch in batches:
            for index, body in enumerate(batch.bodies):
                headers = batch.headers_of(index)
                key = headers.get("key")
                futures.append(
                    producer.send(
                        headers.get("topic", self.topic), body, key.encode() if key else None
                    )
                )
        producer.flush()
        for future in futures:
            future.get(0)

    def stop(self) -> None:
        if self._producer is not None:
            self._producer.close()
