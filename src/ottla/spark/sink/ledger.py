"""The ledger of a query: which micro-batch is committed, as stored in the cluster.

It is a committed offset of the consumer group that bears the sink's name, written in the same
transaction as the rows: the batch number as the offset, the rest as JSON in its metadata. It stands
under partition 0 of every topic that the batch wrote to, so that it outlives the deletion of one of
them; the highest counts. `judge` is the whole decision whether a batch is written; it is pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

# An empty batch writes the ledger anew when it is this old, so that it does not expire
# (offsets.retention.minutes, a week by default) under a query whose rows are rare.
REFRESH_AGE_MS = 24 * 3600 * 1000


class LedgerRefused(RuntimeError):
    """The ledger does not fit to the batch that is to be committed: it might be written twice."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The last batch that is out, the run of the query that wrote it, and when."""

    batch: int
    rows: int
    run: str
    at_ms: int

    def text(self) -> str:
        return json.dumps({"rows": self.rows, "run": self.run, "at": self.at_ms})


def read(entries: Iterable[tuple[int, str]]) -> Ledger | None:
    """The latest of the offsets (with metadata) that the group has."""
    latest = max(entries, default=None)
    if latest is None:
        return None
    batch, text = latest
    try:
        fields = json.loads(text)
        return Ledger(batch, int(fields["rows"]), str(fields["run"]), int(fields["at"]))
    except (ValueError, KeyError, TypeError):
        raise LedgerRefused(
            f"the group's committed offset {batch} is not a ledger of this sink ({text!r:.80})\n"
            "Try: give the sink a name of its own with the option kafka.transactional.id"
        ) from None


class Verdict(Enum):
    WRITE = "write"
    SKIP = "skip"  # the batch is out already


def judge(
    ledger: Ledger | None, batch: int, run: str, *, follows: bool, accept: bool, name: str
) -> Verdict:
    """Whether to write a batch.

    `follows`: this run of the query has finished an earlier batch, so this one was never tried
    before, for Spark repeats only the first batch of a run. `accept`: the user takes it on himself.
    """
    if ledger is None:
        if batch == 0 or follows or accept:
            return Verdict.WRITE
        raise LedgerRefused(
            f"batch {batch} of this query may be out already, and '{name}' has no ledger that "
            "would tell: it expires when the query stands still for longer than the cluster's "
            "offsets.retention.minutes, and is not there when the checkpoint comes from another "
            "sink or cluster\nTry: look whether the rows of the last batch are in the topic; "
            'if not (or if twice does no harm), start once with .option("ledger", "accept")'
        )
    if ledger.batch < batch:
        return Verdict.WRITE
    if ledger.batch == batch and (ledger.run == run or not follows):
        return Verdict.SKIP
    if accept and not follows:
        return Verdict.WRITE
    raise LedgerRefused(
        f"Spark asks for batch {batch}, but batch {ledger.batch} is out already (under '{name}', "
        f"by run {ledger.run}): another driver runs this query, or the checkpoint is an old copy\n"
        "Try: stop the other driver; for a query that begins with a copied checkpoint give its "
        'sink another name, .option("kafka.transactional.id", …), and .option("ledger", "accept")'
    )
