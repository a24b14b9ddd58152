"""The producer ids that a log and its snapshots know: for a start whose metadata tree is new."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.producers import parse_snapshot
from ottla.log.segment import SNAPSHOT

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger("ottla.log")

# No controller comes this far. An id above it was made up by a client (a batch may carry any), and
# must not use up all ids.
PLAUSIBLE_MAX = 2**62
NO_ID = -1


def highest_producer_id(log: Log) -> int:
    """The highest id in the producer state at the log's end and in its snapshots; -1 for none.

    Only what no snapshot covers is read of the log itself. An id that is in no snapshot has
    expired, or its batches are gone.
    """
    ids = [NO_ID, *log.producers.by_id]
    for offset in log.snapshots:
        path = f"{log.directory}/{offset:020d}{SNAPSHOT}"
        try:
            ids += [producer_id for producer_id, _ in parse_snapshot(log.disk.read(path))]
        except (ValueError, OSError) as problem:
            logger.warning("%s: not looked at for producer ids: %s", path, problem)
    return plausible(ids, log.name)


def plausible(ids: list[int], source: str) -> int:
    """The highest of the ids that a controller may have given; -1 for none."""
    highest = max(ids)
    if highest <= PLAUSIBLE_MAX:
        return highest
    logger.warning("%s: producer id %d was not given by a broker; ignored", source, highest)
    return max([each for each in ids if each <= PLAUSIBLE_MAX], default=NO_ID)
