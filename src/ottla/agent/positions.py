"""Positions of streams: how far each sink has delivered, kept where it outlives the agent.

`PositionTopic` keeps them in the compacted topic `__ottla_agent_positions`, in the transactions of
the sink: key and value are JSON, the key is `[instance, agent, sink, stream]`. `PositionFile` keeps
them in the agent's data directory, written after what was delivered.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ottla.client.codec.records import BatchBuilder, murmur2
from ottla.client.config import COMMON
from ottla.client.errors import AuthorizationError, KafkaTimeoutError, TopicAlreadyExistsError
from ottla.client.producer.batch_encoding import seal
from ottla.client.producer.raw_producer import BatchFuture, RawProducer
from ottla.client.structs import TopicPartition

from .atomic_file import is_at, replace_file
from .events import FORGET, Position
from .parts import FencedError, PartError

if TYPE_CHECKING:
    from ottla.client.admin import Admin

logger = logging.getLogger(__name__)

TOPIC = "__ottla_agent_positions"
# A start reads one partition of it, so segments are small and cleaned early.
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",  # an agent whose clock is ahead keeps its positions
    "compression.type": "producer",
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
PARTITIONS = 10  # by instance: a start waits for the open transactions of its partition only
READ_TIMEOUT_S = 120.0  # longer than a transaction that a dead agent left open lasts
BATCH_BYTES_MAX = 512 * 1024  # of positions; half of what a broker takes by default
RECORD_OVERHEAD_BYTES = 64  # of a record's own numbers
LINES_MIN = 1000  # a file with fewer is not written anew
# Reserved in place of a stream, whose name always has a slash.
OWNER = "owner"  # the process that started last
BARRIER = "barrier"  # its offset is where reading ends


def partition_of(instance: str, count: int) -> int:
    """Where the positions of an instance are. It stays when partitions are added to the topic."""
    return murmur2(instance.encode()) % min(count, PARTITIONS)


class SinkIdentity(NamedTuple):
    """Whose positions: one sink of one agent of one instance."""

    instance: str  # kept in the data directory: the same file runs on many hosts
    agent: str
    sink: str

    @property
    def transactional_id(self) -> str:
        return f"ottla-agent-{self.instance}-{self.agent}-{self.sink}"


def common_options(options: Mapping[str, object]) -> dict[str, object]:
    """Those of a producer's options that each client has: servers, security, timeouts."""
    names = {option.name for option in COMMON} | {
        name for option in COMMON for name in option.properties
    }
    return {
        name: value
        for name, value in options.items()
        if name in names or name.replace(".", "_") in names
    }


class PositionTopic:
    """The positions of one sink in the topic."""

    def __init__(self, client_options: Mapping[str, object], identity: SinkIdentity) -> None:
        self._options = common_options(client_options)
        self._identity = identity
        self._process = uuid.uuid4().hex  # tells this process from an older one of the same id
        self._partition = 0
        self._claimed = False

    def ensure_exists(self) -> None:
        from ottla.client.admin import Admin, NewTopic  # who delivers at least once needs none

        with Admin(self._options) as admin:
            try:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1, topic_configs=TOPIC_CONFIGS)])
            except TopicAlreadyExistsError:
                self._check_policy(admin)
            except AuthorizationError:
                return  # whoever runs the cluster has made it; else the first send says so

    def _check_policy(self, admin: Admin) -> None:
        """A topic that deletes what is old forgets a file that was not written for a week."""
        from ottla.client.admin import ConfigResource, ConfigResourceType

        try:
            described = admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, TOPIC, ["cleanup.policy"])],
                config_filter="all",
            )
        except AuthorizationError:
            return
        policy = described["topic"][TOPIC]["cleanup.policy"]["value"]
        if policy != "compact":
            raise PartError(
                f"sink {self._identity.sink}: topic {TOPIC} has cleanup.policy={policy}: positions "
                "would be deleted, and all files read again\n"
                "Try: kafka-configs.sh --alter --entity-type topics "
                f"--entity-name {TOPIC} --add-config cleanup.policy=compact"
            )

    def read(self, producer: RawProducer) -> dict[str, Position]:
        """What is committed, of a producer that was just initialized.

        The first time the sink becomes the owner; later it raises `FencedError` if another process
        has become so since. Reading ends at the sink's own record, not at the end of what is
        committed: an open transaction of another agent may stand before both.
        """
        count = len(producer.partitions_for(TOPIC))
        self._partition = partition_of(self._identity.instance, count)
        producer.begin_transaction()
        sent = self._send(
            producer, {BARRIER if self._claimed else OWNER: {"process": self._process}}
        )
        producer.commit_transaction()
        [(end, _)] = sent.stored()
        found, owner = self._read_until(producer, end)
        if owner is None:
            raise PartError(
                f"sink {self._identity.sink}: topic {TOPIC} was deleted or emptied while the agent "
                "ran: what is delivered is not known any more\n"
                "Try: restore the topic; an agent that starts without it reads all files again"
            )
        if owner != self._process:
            raise FencedError(
                f"sink {self._identity.sink}: another agent {self._identity.agent} of instance "
                f"{self._identity.instance} has started and delivers now; this one ends\n"
                "Try: --instance with an id of its own, if both are to run"
            )
        self._claimed = True
        return found

    def _read_until(
        self, producer: RawProducer, end: int
    ) -> tuple[dict[str, Position], str | None]:
        """The positions up to an offset, which is committed, and the owner."""
        found: dict[str, Position] = {}
        owner = None
        foreign = 0
        mine = list(self._identity)
        try:
            for records in producer.read_committed(
                TopicPartition(TOPIC, self._partition), end + 1, timeout_s=READ_TIMEOUT_S
            ):
                for record in records:
                    try:
                        *holder, stream = json.loads(record.key)
                        if holder != mine or stream == BARRIER:
                            continue
                        if record.value is None:
                            found.pop(stream, None)
                            continue
                        held = json.loads(record.value)
                        if stream == OWNER:
                            owner = held["process"]
                        else:
                            found[stream] = Position(stream, held["offset"], held["facts"])
                    except (ValueError, TypeError, KeyError, RecursionError):
                        foreign += 1  # nobody is kept from writing to the topic
        except KafkaTimeoutError as problem:
            raise KafkaTimeoutError(
                f"{problem}: another agent's transaction is open\n"
                "Try: ottla transactions list, for one that hangs"
            ) from None
        if foreign:
            logger.warning(
                "%s-%d has %d records that are no positions; they are left out",
                TOPIC,
                self._partition,
                foreign,
            )
        return found, owner

    def send(self, producer: RawProducer, positions: Iterable[Position]) -> None:
        """Put positions into the producer's transaction; a forgotten one is a tombstone."""
        values: dict[str, Mapping[str, object] | None] = {
            position.stream: (
                None
                if position.offset == FORGET
                else {"offset": position.offset, "facts": dict(position.facts)}
            )
            for position in positions
        }
        if values:
            self._send(producer, values)

    def _send(
        self, producer: RawProducer, values: Mapping[str, Mapping[str, object] | None]
    ) -> BatchFuture:
        """Send records, in batches that a broker takes; returns the outcome of the last."""
        now_ms = int(time.time() * 1000)
        builder = BatchBuilder(0)
        for stream, value in values.items():
            key = json.dumps([*self._identity, stream]).encode()
            data = None if value is None else json.dumps(value).encode()
            size = len(key) + len(data or b"") + RECORD_OVERHEAD_BYTES
            if builder.record_count and builder.byte_count + size > BATCH_BYTES_MAX:
                producer.send_batch(TOPIC, self._partition, seal(builder, 0, None))
                builder = BatchBuilder(0)
            if builder.byte_count + size > builder.byte_capacity:
                builder.grow(max(builder.byte_count + size, 2 * builder.byte_capacity))
            builder.append(now_ms, key, data, None)
        return producer.send_batch(TOPIC, self._partition, seal(builder, 0, None))


class PositionFile:
    """Positions in a file: lines are appended, each a checksum and JSON, and the file is written
    anew when most of it is out of date. A line that is not whole ends it: only the last can be so,
    and what it said is delivered again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._positions: dict[str, Position] = {}
        self._lines = 0
        self._out: BinaryIO | None = None
        self._lock = threading.Lock()  # sinks that share a channel share the file

    def open(self) -> dict[str, Position]:
        """The positions that are kept; a second call returns them as they are."""
        with self._lock:
            if self._out is None:
                self._load()
            return dict(self._positions)

    def _load(self) -> None:
        self._positions = {}
        damaged = False
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        for number, line in enumerate(lines, start=1):
            position = _position_of(line)
            if position is None:
                if number < len(lines):
                    logger.error("%s line %d is damaged; it is left out", self._path, number)
                    damaged = True
                continue
            self._keep(position)
        if damaged:
            aside = self._path.with_name(f"{self._path.name}.damaged-{uuid.uuid4().hex[:8]}")
            aside.write_bytes(b"".join(lines))
        self._rewrite()

    def write(self, positions: Iterable[Position]) -> None:
        """Keep these; in the hands of the operating system when it returns."""
        with self._lock:
            self._write(positions)

    def _write(self, positions: Iterable[Position]) -> None:
        lines = []
        for position in positions:
            self._keep(position)
            lines.append(_line_of(position))
        if not lines:
            return
        self._lines += len(lines)
        if (
            self._out is None
            or self._lines > LINES_MIN + 2 * len(self._positions)
            # Somebody has deleted it, moved it away, or restored another one in its place.
            or not is_at(self._path, self._out.fileno())
        ):
            self._rewrite()
            return
        try:
            self._out.write(b"".join(lines))
            self._out.flush()
        except OSError:
            self.close()  # half a line may be there: the next one writes the file anew
            raise

    def _keep(self, position: Position) -> None:
        if position.offset == FORGET:
            self._positions.pop(position.stream, None)
        else:
            self._positions[position.stream] = position

    def _rewrite(self) -> None:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, b"".join(map(_line_of, self._positions.values())))
        self._lines = len(self._positions)
        self._out = self._path.open("ab")

    def close(self) -> None:
        out, self._out = self._out, None
        if out is not None:
            with suppress(OSError):  # what could not be written is said by who wrote it
                out.close()


def _line_of(position: Position) -> bytes:
    text = json.dumps([position.stream, position.offset, dict(position.facts)]).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _position_of(line: bytes) -> Position | None:
    """None if the line is not whole."""
    checksum, _, text = line.partition(b" ")
    if not text.endswith(b"\n") or b"%08x" % zlib.crc32(text[:-1]) != checksum:
        return None
    stream, offset, facts = json.loads(text)
    return Position(stream, offset, facts)
