"""What `send` returns: a light handle of one record in a batch.

It holds the batch and the record's place in it; the outcome is known when the batch's is. `get`
waits; callbacks run in the client's background thread (or at once when it is done already).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from ..errors import KafkaError, KafkaTimeoutError, error_for
from ..structs import RecordMetadata

if TYPE_CHECKING:
    from .accumulator import Batch, Callback

log = logging.getLogger("ottla.client")


class FutureRecordMetadata:
    """The record's future; names are kafka-python's, and `result` and `done` besides."""

    __slots__ = ("batch", "header_size", "index", "key_size", "timestamp", "value_size")

    def __init__(
        self,
        batch: Batch,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> None:
        self.batch = batch
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """The record's place, waiting for it (`timeout` in seconds); raises why it failed."""
        batch = self._settled_batch()
        if not batch.over and not batch.wait(timeout):
            raise KafkaTimeoutError(f"the record was not acknowledged within {timeout} s")
        if not self._settled_batch().over:  # it was split meanwhile
            return self.get(timeout)
        error = self.exception
        if error is not None:
            raise error
        return self._metadata()

    result = get

    def _settled_batch(self) -> Batch:
        """The batch that the record is in now: a batch too large for the broker is split."""
        batch = self.batch
        while batch.parts is not None:
            first, second = batch.parts
            if self.index >= first.count:
                self.index -= first.count
                first = second
            self.batch = batch = first
        return batch

    @property
    def is_done(self) -> bool:
        return self._settled_batch().done

    def done(self) -> bool:
        return self.is_done

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.exception is not None

    def retriable(self) -> bool:
        error = self.exception
        return isinstance(error, KafkaError) and error.retriable

    @property
    def value(self) -> RecordMetadata | None:
        """The outcome, or None while there is none."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self) -> Exception | None:
        """Why the record failed, or None."""
        batch = self._settled_batch()
        if batch.record_errors and self.index in batch.record_errors:
            assert isinstance(batch.error, Exception)
            return error_for(getattr(batch.error, "errno", -1), batch.record_errors[self.index])
        return batch.error

    def _metadata(self) -> RecordMetadata:
        batch = self.batch
        queue = batch.queue
        return RecordMetadata(
            queue.topic,
            queue.partition,
            queue.topic_partition,
            batch.base_offset + self.index if batch.base_offset >= 0 else -1,
            batch.append_time if batch.append_time >= 0 else self.timestamp,
            None,
            self.key_size,
            self.value_size,
            self.header_size,
        )

    def add_callback(
        self, f: Callable[..., object], *args: object, **kwargs: object
    ) -> FutureRecordMetadata:
        """`f(*args, metadata)` when the record is written."""
        f = functools.partial(f, *args, **kwargs) if args or kwargs else f
        return self._when_done(lambda metadata, error: None if error else f(metadata))

    def add_errback(
        self, f: Callable[..., object], *args: object, **kwargs: object
    ) -> FutureRecordMetadata:
        """`f(*args, exception)` when the record has failed."""
        f = functools.partial(f, *args, **kwargs) if args or kwargs else f
        return self._when_done(lambda metadata, error: f(error) if error else None)

    def add_both(
        self, f: Callable[..., object], *args: object, **kwargs: object
    ) -> FutureRecordMetadata:
        """`f` with the metadata or the exception."""
        f = functools.partial(f, *args, **kwargs) if args or kwargs else f
        return self._when_done(lambda metadata, error: f(error or metadata))

    def chain(self, future: Any) -> FutureRecordMetadata:
        """Let another future end as this one: one with `success` and `failure` as kafka-python's
        have them, or with `set_result` and `set_exception`."""
        success = getattr(future, "success", None) or future.set_result
        failure = getattr(future, "failure", None) or future.set_exception
        return self._when_done(
            lambda metadata, error: failure(error) if error else success(metadata)
        )

    def _when_done(self, action: Callback) -> FutureRecordMetadata:
        if not self._settled_batch().add_callback(self, action):
            self.call(action)
        return self

    def call(self, action: Callback) -> None:
        """Tell the outcome; what the callback raises is logged."""
        error = self.exception
        try:
            action(None if error else self._metadata(), error)
        except Exception:
            log.exception("a delivery callback failed")

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[RecordMetadata] = loop.create_future()

        def settle(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if waiter.done():
                return
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(metadata)  # type: ignore[arg-type]

        def done(metadata: RecordMetadata | None, error: Exception | None) -> None:
            loop.call_soon_threadsafe(settle, metadata, error)

        self._when_done(done)
        self.batch.hurry()
        return waiter.__await__()
