"""Kafka's small text files: what is written is read again, and nonsense is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log import checkpoints
from ottla.log.checkpoints import CorruptCheckpoint, MetaProperties
from ottla.seams.disk import RealDisk

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=40)
OFFSETS = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20
)


@given(OFFSETS)
def test_offsets_are_read_as_written(offsets: checkpoints.Offsets) -> None:
    """Whatever offsets go into a checkpoint come out of it."""
    assert checkpoints.parse_offsets(checkpoints.format_offsets(offsets), "x") == offsets


def test_offsets_look_as_kafka_writes_them() -> None:
    """Version, count, then 'topic partition offset' in one line each; the last is a checksum."""
    text = checkpoints.format_offsets({("first", 0): 12, ("second", 3): 0})
    lines, checksum = text.rsplit(b"#", 1)
    assert lines == b"0\n3\nfirst 0 12\nsecond 3 0\n"
    assert checksum.split()[:2] == [b"checksum", b"0"]
    assert checkpoints.format_offsets({}) == b"0\n0\n"


def test_what_kafka_wrote_has_no_checksum() -> None:
    """It is read as it is."""
    found = checkpoints.parse_offsets(b"0\n2\nfirst 0 12\nsecond 3 0\n", "x")
    assert found == {("first", 0): 12, ("second", 3): 0}


def test_no_flipped_bit_gives_another_offset() -> None:
    """Trap 32: a checkpoint with one is refused, or says the same of all partitions."""
    offsets = {("first", 0): 12, ("second", 1): 345}
    whole = checkpoints.format_offsets(offsets)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = checkpoints.parse_offsets(bytes(damaged), "x")
        except CorruptCheckpoint:
            continue
        assert {key: found.get(key) for key in offsets} == offsets, bit


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "version 0"),
        (b"1\n0\n", "version 0"),
        (b"0\n", "number of entries"),
        (b"0\nmany\n", "number of entries"),
        (b"0\n2\nfirst 0 12\n", "2 entries"),
        (b"0\n1\nfirst 0 12\nfirst 1 2\n", "1 entries"),
        (b"0\n1\nfirst 0\n", "topic partition offset"),
        (b"0\n1\nfirst 0 1 2\n", "topic partition offset"),
        (b"0\n1\nfirst zero 12\n", "topic partition offset"),
        (b"\x00\xff\x00", "version 0"),
    ],
)
def test_a_broken_checkpoint_is_named(text: bytes, complaint: str) -> None:
    """A torn or foreign checkpoint raises an error with its path and what was expected."""
    with pytest.raises(CorruptCheckpoint, match=complaint) as caught:
        checkpoints.parse_offsets(text, "data/recovery-point-offset-checkpoint")
    assert "data/recovery-point-offset-checkpoint" in str(caught.value)


def test_every_prefix_of_a_checkpoint_is_refused() -> None:
    """A checkpoint cut anywhere but before its last newline never reads as another one."""
    whole = checkpoints.format_offsets({("first", 0): 12, ("second", 1): 345})
    for cut in range(len(whole) - 1):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.parse_offsets(whole[:cut], "x")


def test_meta_properties_round_trip() -> None:
    """Cluster, node and directory ids are read as written, in Kafka's own format."""
    meta = MetaProperties("q1Sh-9_ISia_zwGINzRvyQ", 1, "PFnH0MmBQ5a7TtFGKL5zGQ")
    text = checkpoints.format_meta_properties(meta)
    assert checkpoints.parse_meta_properties(text, "x") == meta
    assert b"\nversion=1\n" in text


def test_meta_properties_of_apache_kafka_are_read() -> None:
    """Java's property files have comments and escapes; version 0 has `broker.id`."""
    text = b"#\n#Sun Nov 15\nnode.id=7\ndirectory.id=A\\=B\nversion=1\ncluster.id=x\n"
    assert checkpoints.parse_meta_properties(text, "x") == MetaProperties("x", 7, "A=B")
    old = b"broker.id=3\ncluster.id=y\nversion=0\n"
    assert checkpoints.parse_meta_properties(old, "x") == MetaProperties("y", 3, None)


@pytest.mark.parametrize(
    "text",
    [b"", b"version=2\n", b"version=1\ncluster.id=x\n", b"version=1\nnode.id=1\n", b"gibberish",
     b"version=1\ncluster.id=x\nnode.id=one\n"],
)  # fmt: skip
def test_broken_meta_properties_are_named(text: bytes) -> None:
    """A meta.properties without what it must have is an error with its path."""
    with pytest.raises(CorruptCheckpoint, match=r"data/meta\.properties"):
        checkpoints.parse_meta_properties(text, "data/meta.properties")


def test_clean_shutdown_marker_counts_whatever_it_says() -> None:
    """The marker holds the broker's epoch as JSON; an older, empty one still counts."""
    assert checkpoints.format_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert checkpoints.parse_clean_shutdown(b'{"version":0,"brokerEpoch":12}') == 12
    for text in (b"", b"{}", b"[]", b'{"brokerEpoch":null}', b"torn{"):
        assert checkpoints.parse_clean_shutdown(text) == -1


@given(st.binary(min_size=16, max_size=16).filter(any))
def test_topic_ids_are_read_as_written(topic_id: bytes) -> None:
    """Any topic id survives `partition.metadata` and Kafka's base64."""
    text = checkpoints.format_partition_metadata(topic_id)
    assert checkpoints.parse_partition_metadata(text, "x") == topic_id
    assert checkpoints.uuid_from_text(checkpoints.uuid_text(topic_id)) == topic_id


@pytest.mark.parametrize(
    "text",
    [b"", b"version: 1\ntopic_id: PFnH0MmBQ5a7TtFGKL5zGQ", b"version: 0\ntopic_id: short",
     b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\ntopic: PFnH0MmBQ5a7TtFGKL5zGQ",
     b"version: 0\ntopic_id: PFnH0MmBQ5a7TtFGKL5z!!"],
)  # fmt: skip
def test_broken_partition_metadata_is_named(text: bytes) -> None:
    """A partition.metadata without a usable id is an error, not a made-up id."""
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_partition_metadata(text, "first-0/partition.metadata")


def test_files_on_a_disk(tmp_path: object) -> None:
    """Missing files read as nothing; written ones as written; a corrupt one raises."""
    disk, directory = RealDisk(), str(tmp_path)
    name = checkpoints.RECOVERY_POINTS
    assert checkpoints.read_offsets(disk, directory, name) == {}
    assert checkpoints.read_meta_properties(disk, directory) is None
    assert checkpoints.read_partition_metadata(disk, directory) == (None, None, None)
    checkpoints.write_offsets(disk, directory, name, {("first", 0): 5})
    checkpoints.write_meta_properties(disk, directory, MetaProperties("c", 1, "d"))
    assert checkpoints.read_offsets(disk, directory, name) == {("first", 0): 5}
    assert checkpoints.read_meta_properties(disk, directory) == MetaProperties("c", 1, "d")
    disk.write_atomically(f"{directory}/{name}", b"0\n9\n", sync=False)
    with pytest.raises(CorruptCheckpoint, match=name):
        checkpoints.read_offsets(disk, directory, name)
