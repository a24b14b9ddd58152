"""Blocks of producer ids: each is handed to one broker once, and never again. Pure."""

BLOCK_SIZE = 1_000  # as Kafka's: a broker asks once per thousand producers
HIGHEST = 2**63 - 1


def end_of_used(highest: int) -> int:
    """The last id that may be in use where `highest` is the highest one known.

    Its block may have been given to a broker as a whole, and so may the one after it: a producer
    that has written nothing yet leaves no trace of its id.
    """
    return (highest // BLOCK_SIZE + 2) * BLOCK_SIZE - 1


def next_block(last: int | None) -> range | None:
    """The block after the one that ended with `last`; None when the ids are used up."""
    first = 0 if last is None else last + 1
    if first > HIGHEST - BLOCK_SIZE + 1:
        return None
    return range(first, first + BLOCK_SIZE)
