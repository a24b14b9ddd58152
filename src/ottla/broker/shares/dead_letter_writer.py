"""Writes dead letters (KIP-1191): to the leader of their partition, again until that is done.

A letter may be written twice, when an answer was lost or a leader of the source took over, and is
never lost because a broker is away: KIP-1191 names no number of attempts, and where Kafka's code
gives a record up after five, this one says so in the log and goes on. An operator who does not want
to wait takes the topic from the group's configs. What no attempt can change (the topic does not
agree to it, a record too large for it even without its copy) is logged with the records' offsets,
and these are given up without one, as Kafka does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.shares.dead_letters import (
    COPY_BYTES,
    GROUP_ENABLE,
    Copies,
    Source,
    copies_in,
    destination,
    letters,
    one_by_one,
    trouble,
)
from ottla.broker.shares.ranges import GivenUp
from ottla.cluster.requests import NewTopic
from ottla.replica.reads import FetchIsolation
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import ErrorCode
from ottla.wire.records import HEADER_BYTES, read_header

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.shares.group_configs import ShareConfigs
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Timer

log = logging.getLogger("ottla.broker")

# Kafka's first pause, its longest, and its number of attempts, after which it gives the records up.
RETRY_S = 1.0
RETRY_MAX_S = 30.0
QUIET_ATTEMPTS = 5
# Of a group's records that are given up without letters, a line so often; what falls between is
# counted in the next one.
COMPLAINT_INTERVAL_S = 10.0
PRODUCE_TIMEOUT_MS = 30_000
ALL_IN_SYNC = -1
# The prefix of Kafka's that letters' topics have, and whether they are made when they are needed.
PREFIX = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
# The time of a letter is that of its writing, also where the broker's default is another.
TOPIC_CONFIGS = ((GROUP_ENABLE, "true"), ("message.timestamp.type", "CreateTime"))
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


class DeadLetterWriter:
    """What the share partitions of a broker give their dead letters to."""

    def __init__(self, broker: Broker, configs: ShareConfigs) -> None:
        self.broker = broker
        self.configs = configs
        self._complaints: dict[str, Complaint] = {}  # by group

    def write(
        self,
        group_id: str,
        partition: Partition,
        given_up: Sequence[GivenUp],
        is_wanted: Callable[[], bool],
        then: Callable[[int], object],
    ) -> None:
        """Write letters for the first of these records; `then` gets to know of how many.

        It is called later, and not at all once this is not wanted any more.
        """
        Writing(self, group_id, partition, one_by_one(given_up), is_wanted, then).start()

    def complain(self, source: Source, given_up: Sequence[GivenUp], reason: str) -> None:
        """Log which records are given up without letters, and why."""
        complaint = self._complaints.setdefault(source.group_id, Complaint())
        complaint.count += len(given_up)
        complaint.last = (
            f"{source.topic}-{source.partition} at offsets "
            f"{given_up[0].first} to {given_up[-1].last}: {reason}"
        )
        if complaint.timer is None:
            self._log(source.group_id, complaint)

    def _log(self, group_id: str, complaint: Complaint) -> None:
        complaint.timer = None
        if not complaint.count:
            del self._complaints[group_id]
            return
        log.warning(
            "share group %s: %d records are given up without dead letters, the last of %s",
            group_id,
            complaint.count,
            complaint.last,
        )
        complaint.count = 0
        complaint.timer = self.broker.clock.call_later(
            COMPLAINT_INTERVAL_S, self._log, group_id, complaint
        )


class Complaint:
    """What is to be logged of a group's records that got no letters."""

    __slots__ = ("count", "last", "timer")

    def __init__(self) -> None:
        self.count = 0
        self.last = ""
        self.timer: Timer | None = None  # until then nothing is logged


class Writing:
    """One batch of letters until it is written."""

    def __init__(
        self,
        writer: DeadLetterWriter,
        group_id: str,
        partition: Partition,
        given_up: list[GivenUp],
        is_wanted: Callable[[], bool],
        then: Callable[[int], object],
    ) -> None:
        self._writer = writer
        self._broker = writer.broker
        self._source = Source(group_id, partition.topic, partition.index)
        self._partition = partition
        self._given_up = given_up
        self._is_wanted = is_wanted
        self._then = then
        self._may_copy = True
        self._retry_s = RETRY_S
        self._attempts = 0

    def start(self) -> None:
        # Not within the caller's turn: its own state is in the making.
        self._broker.clock.call_later(0, self._attempt)

    def _attempt(self) -> None:
        if not self._is_wanted():
            return
        broker, group_id = self._broker, self._source.group_id
        topic = self._writer.configs.dead_letter_topic(group_id)
        if not topic:
            self._then(len(self._given_up))  # switched off meanwhile
            return
        reason = trouble(
            broker.image,
            group_id,
            topic,
            prefix=broker.settings.text(PREFIX),
            may_create=broker.settings.flag(AUTO_CREATE),
        )
        if reason is not None:
            self._give_up(reason)
        elif topic not in broker.image.topics:
            broker.dispatcher.run(self._create(topic))
        else:
            self._send(topic)

    async def _create(self, topic: str) -> None:
        problem: object = None
        try:
            [outcome] = await self._broker.controller.create_topics(
                [NewTopic(topic, configs=TOPIC_CONFIGS)]
            )
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                problem = outcome.error_message or outcome.error_code.name
        except Exception as error:
            problem = error
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            return
        if problem is None:
            self._attempt()
        else:
            self._retry(f"{topic} cannot be created: {problem}")

    def _send(self, topic: str) -> None:
        broker = self._broker
        image = broker.image
        index = destination(self._source.partition, len(image.topics[topic].partitions))
        known = image.partition(topic, index)
        if known is None or known.leader < 0:
            self._retry(f"{topic}-{index} has no leader")
            return
        bytes_max = broker.settings.topic_values(image.configs_of(topic))["max.message.bytes"]
        assert isinstance(bytes_max, int)
        batch, count = letters(
            self._source, self._given_up, self._copies(), broker.clock.now_ms(), bytes_max
        )
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=image.topics[topic].id,
                    partition_data=[
                        PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
                    ],
                )
            ],
        )

        def answered(response: Any) -> None:
            self._answered(f"{topic}-{index}", count, response)

        broker.peers.send(known.leader, request, answered)

    def _answered(self, place: str, count: int, response: Any) -> None:
        if isinstance(response, ErrorCode):
            self._retry(f"{place}: {response.name}")
            return
        answer = response.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if not error:
            self._then(count)
        elif error in TOO_LARGE and count > 1:
            self._given_up = self._given_up[: count // 2]
            self._attempt()
        elif error in TOO_LARGE and self._may_copy:
            self._given_up, self._may_copy = self._given_up[:1], False
            self._attempt()
        elif error.retriable:
            self._retry(f"{place}: {error.name}")
        else:
            self._give_up(f"{place}: {answer.error_message or error.message}")

    def _copies(self) -> Copies:
        """The records as they are in the log, as far as one read goes, if they are wanted."""
        if not (self._may_copy and self._writer.configs.copies_records(self._source.group_id)):
            return {}
        wanted = {each.first for each in self._given_up}
        data = self._read(self._given_up[0].first, COPY_BYTES)
        if len(data) > HEADER_BYTES:
            whole = read_header(data).size
            if whole > len(data):
                data = self._read(self._given_up[0].first, whole)
        copies = copies_in(data, wanted)
        reached = max(copies, default=self._given_up[0].first)
        # Those behind come with the next batch.
        self._given_up = [each for each in self._given_up if each.first <= reached]
        return copies

    def _read(self, offset: int, bytes_max: int) -> bytes:
        info = self._partition.read(offset, bytes_max, FetchIsolation.HIGH_WATERMARK)
        if info.error_code or info.records is None:
            return b""
        try:
            return bytes(info.records.file.pread(info.records.size, info.records.position))
        except OSError as error:
            log.warning("%s: no copy for a dead letter: %s", self._partition, error)
            return b""

    def _retry(self, reason: str) -> None:
        self._attempts += 1
        waits = log.warning if self._attempts == QUIET_ATTEMPTS else log.debug
        waits(
            "share group %s: %d dead letters of %s-%d from offset %d on wait: %s",
            self._source.group_id,
            len(self._given_up),
            self._source.topic,
            self._source.partition,
            self._given_up[0].first,
            reason,
        )
        self._broker.clock.call_later(self._retry_s, self._attempt)
        self._retry_s = min(self._retry_s * 2, RETRY_MAX_S)

    def _give_up(self, reason: str) -> None:
        self._writer.complain(self._source, self._given_up, reason)
        self._then(len(self._given_up))
