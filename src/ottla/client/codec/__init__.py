"""Record batches to and from bytes: the per-record loops (compiled where possible) and columns."""
