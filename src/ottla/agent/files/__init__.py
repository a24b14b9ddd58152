"""Files as streams: which file is which, reading from a position, noticing changes."""
