"""How far a reader of a partition may see, and what one read of it returns."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.log.transaction_index import AbortedTransaction
    from ottla.wire.out import FileRange


class FetchIsolation(Enum):
    """How far a reader may see. The names are Kafka's."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class LogReadInfo:
    """The result of one read: the partition's offsets, and the records or why there are none."""

    __slots__ = (
        "aborted_transactions",
        "at_end",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
    )

    def __init__(
        self,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        at_end: bool = False,
        error_code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        # Nothing visible lies at or behind the offset asked for: the reader has to wait.
        self.at_end = at_end
        self.error_code = error_code
        self.records: FileRange | None = None
        self.aborted_transactions: list[AbortedTransaction] | None = None
        # The epoch and offset at which the reader's log and this one part (KIP-595).
        self.diverging_epoch: tuple[int, int] | None = None
