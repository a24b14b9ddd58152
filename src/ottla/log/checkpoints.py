"""Kafka's small text files beside the logs: what they say, and how they are read and written.

In each data directory: the offset checkpoints (`recovery-point-offset-checkpoint` and three more),
`meta.properties` (the cluster and node that own the directory) and `.kafka_cleanshutdown` (nothing
needs recovery). In each partition's folder: `partition.metadata` (the topic's id and configs), and
`compaction.metadata` (the log was compacted: gaps between offsets are no damage), which is our own
and ignored by Kafka.

The upper half is pure: text to values and back. The lower half goes through the disk. Files are
written beside the old one and renamed over it, so a reader finds the old text or the new one.
A file that is missing reads as nothing; one that cannot be understood raises `CorruptCheckpoint`,
and the caller decides whether it can do without.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
COMPACTION_METADATA = "compaction.metadata"
CONFIGS_FIELD = "configs: "
PARTITION_FIELD = "partition: "
CONFIGS_PARSED_MAX = 1_000  # all partitions of a topic have the same line: it is parsed once

CHECKPOINT_VERSION = 0
CHECKSUM_NAME = "#checksum"  # no topic can have it
NO_BROKER_EPOCH = -1

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


class CorruptCheckpoint(Exception):
    """A checkpoint file cannot be parsed; the message names the file, what was found, a remedy."""

    def __init__(self, path: str, *, expected: str, found: str, hint: str = "") -> None:
        found = found if len(found) <= 80 else found[:80] + "…"
        super().__init__(
            f"{path}: expected {expected}, found {found!r}" + (f"; {hint}" if hint else "")
        )
        self.path = path


# Topic ids as text: base64 without padding, as Kafka prints them everywhere.


def uuid_text(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's base64; raises ValueError for anything else."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a base64 UUID: {error}") from None
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a base64 UUID: {len(uuid)} bytes, not 16")
    return uuid


# Offset checkpoints: a version, a count, then one line per partition. The last is ours, a partition
# that there is not, with the checksum of the others for its offset: without it one flipped bit in
# the start of a log would delete records, here and, once this replica leads, on all others. Kafka
# passes over partitions that it does not have, and leaves the line out when it writes the file.


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    if lines:
        lines.append(f"{CHECKSUM_NAME} 0 {_checksum(lines)}")
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""]).encode()


def _checksum(lines: list[str]) -> int:
    return crc32c("\n".join(lines).encode())


def parse_offsets(data: bytes, path: str) -> Offsets:
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines or lines[0] != str(CHECKPOINT_VERSION):
        found = lines[0] if lines else ""
        raise CorruptCheckpoint(path, expected=f"version {CHECKPOINT_VERSION}", found=found)
    count = _whole_number(lines[1] if len(lines) > 1 else "", path, "the number of entries")
    if count != len(lines) - 2:
        raise CorruptCheckpoint(path, expected=f"{count} entries", found=str(len(lines) - 2))
    offsets: Offsets = {}
    for line in lines[2:]:
        fields = line.split()
        try:
            topic, partition, offset = fields[0], int(fields[1]), int(fields[2])
        except (ValueError, IndexError):
            fields = []
        if len(fields) != 3:
            raise CorruptCheckpoint(path, expected="'topic partition offset'", found=line)
        offsets[topic, partition] = offset
    checksum = offsets.pop((CHECKSUM_NAME, 0), None)
    if checksum is not None and checksum != (found_checksum := _checksum(lines[2:-1])):
        raise CorruptCheckpoint(path, expected=f"checksum {checksum}", found=str(found_checksum))
    return offsets


def _whole_number(text: str, path: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpoint(path, expected=what, found=text) from None


# meta.properties: the cluster and node that own the directory.


class MetaProperties:
    """Cluster, node and directory that a data directory belongs to."""

    __slots__ = ("cluster_id", "directory_id", "node_id")

    def __init__(self, cluster_id: str, node_id: int, directory_id: str | None) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.directory_id = directory_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetaProperties) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"MetaProperties{self._fields()}"

    def _fields(self) -> tuple[str, int, str | None]:
        return self.cluster_id, self.node_id, self.directory_id


def format_meta_properties(meta: MetaProperties) -> bytes:
    lines = ["#", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={meta.directory_id}")
    lines += [f"node.id={meta.node_id}", "version=1"]
    return ("\n".join(lines) + "\n").encode()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Reads version 1, and version 0 as ZooKeeper's Kafka wrote it (`broker.id`)."""
    values: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and not line.startswith(("#", "!")):
            name, separator, value = line.partition("=")
            if not separator:
                raise CorruptCheckpoint(path, expected="'name=value'", found=line)
            values[name.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise CorruptCheckpoint(path, expected="version 0 or 1", found=version)
    for name in ("cluster.id", "node.id" if version == "1" else "broker.id"):
        if name not in values:
            raise CorruptCheckpoint(path, expected=f"a line '{name}=…'", found="none")
    node_id = _whole_number(values["node.id" if version == "1" else "broker.id"], path, "a node id")
    return MetaProperties(values["cluster.id"], node_id, values.get("directory.id"))


# .kafka_cleanshutdown (KIP-966 put the broker's epoch into it). The checksum of the high watermarks
# beside it is ours: an older copy of the directory that is unpacked over it leaves the marker.


def format_clean_shutdown(broker_epoch: int, high_watermarks: bytes | None = None) -> bytes:
    fields = {"version": 0, "brokerEpoch": broker_epoch}
    if high_watermarks is not None:
        fields["highWatermarksCrc"] = crc32c(high_watermarks)
    return json.dumps(fields, separators=(",", ":")).encode()


def belongs_to_clean_shutdown(data: bytes, high_watermarks: bytes) -> bool:
    """Whether a checkpoint is the one that was there at the clean stop, if the marker says so."""
    try:
        noted = json.loads(data).get("highWatermarksCrc")
    except (ValueError, AttributeError):
        return True
    return noted is None or noted == crc32c(high_watermarks)


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch in the marker; -1 when there is none, for the marker counts by being."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


# partition.metadata: the topic's id, in each partition's folder. Kafka reads its first two lines
# and no further; the topic's configs as JSON (see broker/adoption.py) and the partition are ours.


def format_partition_metadata(
    topic_id: bytes, configs: Mapping[str, str] | None = None, partition: int | None = None
) -> bytes:
    """`partition`: whose folder it is. One that an operator has renamed is that of another."""
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    if configs is not None:
        text += f"\n{CONFIGS_FIELD}{json.dumps(dict(configs), sort_keys=True)}\n"
    if partition is not None:
        text += ("" if configs is not None else "\n") + f"{PARTITION_FIELD}{partition}\n"
    return text.encode()


def parse_partition_index(data: bytes) -> int | None:
    """The partition that the folder was made for; None when it is not noted, or torn."""
    for line in data.splitlines()[2:]:
        if line.startswith(PARTITION_FIELD.encode()):
            number = line[len(PARTITION_FIELD) :]
            return int(number) if number.isdigit() else None
    return None


def parse_partition_configs(data: bytes) -> Mapping[str, str] | None:
    """The topic's configs as of the last change that was kept; None when none were, or are torn."""
    lines = data.split(b"\n", 2)
    return _parse_configs(lines[2]) if len(lines) == 3 else None


@lru_cache(maxsize=CONFIGS_PARSED_MAX)
def _parse_configs(text: bytes) -> Mapping[str, str] | None:
    for line in text.decode("utf-8", "replace").splitlines():
        if line.startswith(CONFIGS_FIELD):
            try:
                configs = json.loads(line.removeprefix(CONFIGS_FIELD))
            except ValueError:
                return None
            if isinstance(configs, dict) and all(isinstance(v, str) for v in configs.values()):
                return MappingProxyType(configs)
    return None


def parse_partition_metadata(data: bytes, path: str) -> bytes:
    text = data.decode("utf-8", "replace")
    fields = " ".join(text.splitlines()[:2]).split()
    if len(fields) != 4 or fields[0] != "version:" or fields[2] != "topic_id:":
        raise CorruptCheckpoint(path, expected="'version: 0' and 'topic_id: …'", found=text)
    if fields[1] != "0":
        raise CorruptCheckpoint(path, expected="version 0", found=fields[1])
    try:
        topic_id = uuid_from_text(fields[3])
    except ValueError as error:
        raise CorruptCheckpoint(path, expected="a topic id", found=str(error)) from None
    if topic_id == bytes(16):
        raise CorruptCheckpoint(path, expected="a topic id", found="the zero id")
    return topic_id


# On the disk.


def read_if_there(disk: "Disk", path: str) -> bytes | None:
    """A small file's bytes, or None when there is no such file."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def read_offsets(disk: "Disk", directory: str, name: str) -> Offsets:
    """One of the four offset checkpoints of a data directory; nothing when it is not there."""
    path = f"{directory}/{name}"
    data = read_if_there(disk, path)
    return {} if data is None else parse_offsets(data, path)


def write_offsets(
    disk: "Disk", directory: str, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    disk.write_atomically(f"{directory}/{name}", format_offsets(offsets), sync=True)


def read_meta_properties(disk: "Disk", directory: str) -> MetaProperties | None:
    path = f"{directory}/{META_PROPERTIES}"
    data = read_if_there(disk, path)
    return None if data is None else parse_meta_properties(data, path)


def write_meta_properties(disk: "Disk", directory: str, meta: MetaProperties) -> None:
    disk.write_atomically(f"{directory}/{META_PROPERTIES}", format_meta_properties(meta), sync=True)


def read_partition_metadata(
    disk: "Disk", directory: str
) -> tuple[bytes | None, Mapping[str, str] | None, int | None]:
    """The topic's id and configs, and the partition, from a folder; None for what is not there."""
    path = f"{directory}/{PARTITION_METADATA}"
    data = read_if_there(disk, path)
    if data is None:
        return None, None, None
    topic_id = parse_partition_metadata(data, path)
    return topic_id, parse_partition_configs(data), parse_partition_index(data)


def mark_compacted(disk: "Disk", directory: str) -> None:
    """Leaves a lasting sign in a partition's folder that its log has been compacted.

    It is written before the first compacted segment is swapped in, and travels with the folder:
    recovery needs it where no checkpoint of a data directory tells (see recovery.py).
    """
    path = f"{directory}/{COMPACTION_METADATA}"
    if not disk.exists(path):
        disk.write_atomically(path, b"version: 0\n", sync=True)
