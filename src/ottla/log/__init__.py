"""One partition on disk: segments, indexes, producers, epochs, recovery, retention, compaction."""
