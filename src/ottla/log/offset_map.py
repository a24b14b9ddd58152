"""Key → offset of its last record: the map that compaction is decided by, and its record loops.

Kafka's `SkimpyOffsetMap`: one table with a fixed number of slots, found by open addressing. A slot
holds a hash of 128 bits in the place of the key, and an offset: 24 bytes. The hash is keyed with a
secret of the compaction, so that nobody can choose two keys with one hash; that two keys have one
by chance (the later one would then remove the record of the other) is as likely as 2**-128 for a
pair. Kafka relies on MD5 in the same way.

`add` and `keep` loop over records, so the class has a compiled form, offset_map.pyx, with the same
interface; the helper process takes it where it was built (`make compile`). Only the hash differs:
SipHash there, BLAKE2b here.
"""

import hashlib
from array import array
from typing import Final

from ottla.log.batch import scan_records
from ottla.seams.compiled import compiled_module

COMPILED_MODULE = "ottla.log._offset_map_c"
FORM = 2  # what the compiled form must say
HASH_BYTES = 16
OFFSET_BYTES = 8
SLOT_BYTES = HASH_BYTES + OFFSET_BYTES
WINDOW_BYTES = 8 * HASH_BYTES  # looked at in one call of `find`
LOAD_FACTOR_MIN = 0.01
NO_HASH = bytes(HASH_BYTES)

Kept = tuple[int, int, bool, int, bytes]


class OffsetMap:
    """Key → offset of its last record, in a table of `slots`, of which `entries_max` may be used.

    The hashes lie in one bytearray and the offsets in an array beside it: a key is then found with
    `bytearray.find`, a window of slots at a time, instead of slot by slot.
    """

    __slots__ = ("_entries", "_hasher", "_hashes", "_offsets", "_slots", "entries_max",
                 "latest_offset")  # fmt: skip

    def __init__(self, slots: int, entries_max: int, secret: bytes) -> None:
        self._hasher = hashlib.blake2b(digest_size=HASH_BYTES, key=secret)
        self.entries_max: Final = entries_max
        self.latest_offset = -1  # everything up to here is in the map
        self._entries = 0
        self._allocate(slots)

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        self._hashes = bytearray(slots * HASH_BYTES)
        self._offsets = array("q", bytes(slots * OFFSET_BYTES))

    def __len__(self) -> int:
        return self._entries

    def has_capacity(self, count: int) -> bool:
        """Whether `count` more keys may go in; one batch always may, or nothing would move."""
        if self._entries == 0 and count >= self._slots:
            self._allocate(count + 1)
        return self._entries == 0 or self._entries + count <= self.entries_max

    def digest(self, key: bytes) -> bytes:
        hasher = self._hasher.copy()
        hasher.update(key)
        return hasher.digest()

    def get(self, key: bytes) -> int:
        """The last offset of a key, or -1."""
        slot = self._find(self.digest(key))
        return self._offsets[slot] if slot >= 0 else -1

    def _find(self, digest: bytes) -> int:
        """The slot of a hash, or, if it has none, ~slot of the free one where it belongs."""
        hashes = self._hashes
        at = int.from_bytes(digest[:8], "little") % self._slots * HASH_BYTES
        first = hashes[at : at + HASH_BYTES]
        if first == digest:
            return at // HASH_BYTES
        if first == NO_HASH:
            return ~(at // HASH_BYTES)
        while True:
            end = at + WINDOW_BYTES
            found = _aligned(hashes, digest, at, end)
            if found >= 0:
                return found // HASH_BYTES
            found = _aligned(hashes, NO_HASH, at, end)
            if found >= 0:
                return ~(found // HASH_BYTES)
            at = end if end < len(hashes) else 0

    def _put(self, key: bytes, offset: int) -> None:
        digest = self.digest(key)
        slot = self._find(digest)
        if slot < 0:
            slot = ~slot
            self._entries += 1
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] = digest
        self._offsets[slot] = offset

    def add(self, records: bytes, count: int, base_offset: int, start_offset: int) -> None:
        """Puts the keys of a batch's `count` records, those from `start_offset` on.

        `has_capacity(count)` was asked before. Raises `CorruptBatch` when the bytes are not exactly
        `count` records.
        """
        for _, _, _, offset_delta, key, _ in scan_records(records, count):
            offset = base_offset + offset_delta
            if key is not None and offset >= start_offset:
                self._put(key, offset)

    def keep(self, records: bytes, count: int, base_offset: int, tombstones_stay: bool) -> Kept:
        """What compaction keeps of a batch's records.

        Returns the number of records that stay, the number that go for want of a key, whether a
        tombstone is among those that stay, the largest timestamp delta among them, and their
        bytes. A record stays if it is beyond `latest_offset`, or if no later record has its key
        (and tombstones stay, if it is one). Raises `CorruptBatch` as `add` does.
        """
        without_key = kept = 0
        has_tombstone = False
        max_timestamp_delta: int | None = None
        pieces = []
        run_start = 0  # the records from here on stay
        get, latest_offset = self.get, self.latest_offset
        for start, end, timestamp_delta, offset_delta, key, has_value in scan_records(
            records, count
        ):
            offset = base_offset + offset_delta
            if offset <= latest_offset and (
                key is None or not (has_value or tombstones_stay) or offset < get(key)
            ):
                without_key += key is None
                if run_start < start:
                    pieces.append(records[run_start:start])
                run_start = end
                continue
            kept += 1
            has_tombstone = has_tombstone or not has_value
            if max_timestamp_delta is None or timestamp_delta > max_timestamp_delta:
                max_timestamp_delta = timestamp_delta
        if run_start:
            pieces.append(records[run_start:])
            records = b"".join(pieces)
        return kept, without_key, has_tombstone, max_timestamp_delta or 0, records


def _aligned(hashes: bytearray, wanted: bytes, start: int, end: int) -> int:
    """The first place of a hash at the beginning of a slot, or -1."""
    found = hashes.find(wanted, start, end)
    while found >= 0 and found % HASH_BYTES:
        found = hashes.find(wanted, found + 1, end)
    return found


def best_form() -> type[OffsetMap]:
    """The compiled form where it was built, else the plain one."""
    compiled = compiled_module(COMPILED_MODULE, FORM)
    return compiled.OffsetMap if compiled is not None else OffsetMap


def offset_map_of(
    bytes_max: int, load_factor: float, secret: bytes, *, records_max: int
) -> OffsetMap:
    """A map for at most `records_max` records that takes at most `bytes_max` bytes.

    `load_factor` is the share of its slots that may be used (`log.cleaner.io.buffer.load.factor`).
    A table for few records is made no larger than these need.
    """
    load_factor = min(max(load_factor, LOAD_FACTOR_MIN), 1.0)
    slots = max(2, min(bytes_max // SLOT_BYTES, int(records_max / load_factor) + 2))
    return best_form()(slots, max(1, min(int(slots * load_factor), slots - 1)), secret)
