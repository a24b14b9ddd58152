"""Why a broker has not started, in one sentence."""

from __future__ import annotations

import errno
import os
import shutil

from ottla.cli.failure import Failure, cannot_use_directory

# With less free space than this, a start that failed at its database failed for want of space.
START_BYTES_MIN = 128 * 1024


def why_not_started(error: Exception, directory: str) -> Failure:
    """One sentence for what the broker found wrong with its data directory."""
    from ottla.metadata_store.tree import ConnectionLoss

    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError):
        return cannot_use_directory(cause, directory)
    # It is not made yet where ZooKeeper does not answer the first time.
    made = isinstance(error, ConnectionLoss) and os.path.isdir(directory)
    if made and shutil.disk_usage(directory).free < START_BYTES_MIN:
        # SQLite has several words for it, and "disk I/O error" is one of them.
        return cannot_use_directory(OSError(errno.ENOSPC, "", directory), directory)
    fact, _, hint = str(error).partition("; ")
    return Failure(fact, hint or "ottla server --data-dir ANOTHER-DIRECTORY")
