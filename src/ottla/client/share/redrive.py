"""Dead letters back to where they came from: `redrive`.

Letters are those that `Queue.dead` writes and those of Kafka's share groups (KIP-1191). The record
is taken from its old place, if it is still there; else the letter's own key and value are, if it
has any. Each step is one transaction of records and of how far it went (the committed offsets of
the group `redrive-<topic of letters>`), so that no letter goes back twice or is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ..consumer import Consumer
from ..producer import Producer
from ..structs import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .queue import DEAD_PLACE_HEADER, DEAD_TOPIC_HEADER, OUR_HEADERS

# Kafka's headers of a dead letter.
KAFKAS_HEADERS = "__dlq.errors."
KAFKAS_TOPIC = "__dlq.errors.topic"
KAFKAS_PARTITION = "__dlq.errors.partition"
KAFKAS_OFFSET = "__dlq.errors.offset"
LETTERS_PER_STEP = 100
POLL_MS = 1000
QUIET_POLLS_MAX = 10  # without a record of those that are there
TRANSACTION_MS = 60_000

Letter = ConsumerRecord[Any, Any]


class Origin(NamedTuple):
    """Where a letter's record lay."""

    partition: TopicPartition
    offset: int


class Redriven(NamedTuple):
    """How many letters went back, and how many could not."""

    sent: int = 0
    gone: int = 0  # the record is not in the log any more, and the letter has no copy
    unknown: int = 0  # no letters: nothing says where they came from


def origin_of(letter: Letter) -> Origin | None:
    """Where the record of a letter lay; None where it does not say."""
    headers = {
        name: bytes(value or b"").decode("utf-8", "replace") for name, value in letter.headers
    }
    try:
        if KAFKAS_TOPIC in headers:
            topic, number = headers[KAFKAS_TOPIC], int(headers[KAFKAS_PARTITION])
            return Origin(TopicPartition(topic, number), int(headers[KAFKAS_OFFSET]))
        topic, place = headers[DEAD_TOPIC_HEADER], headers[DEAD_PLACE_HEADER]
        number_text, _, offset = place.removeprefix(f"{topic}-").partition("@")
        return Origin(TopicPartition(topic, int(number_text)), int(offset))
    except (KeyError, ValueError):
        return None


def is_ours(letter: Letter) -> bool:
    """Whether a `Queue` has written it: such a letter has all of its record."""
    return any(name == DEAD_TOPIC_HEADER for name, _ in letter.headers)


def own_headers(letter: Letter) -> list[tuple[str, bytes | None]]:
    """The headers of a letter without those that make it one."""
    return [
        (name, value)
        for name, value in letter.headers
        if name not in OUR_HEADERS and not name.startswith(KAFKAS_HEADERS)
    ]


def redrive(
    letters: str,
    *,
    topic: str | None = None,
    count_max: int | None = None,
    dry_run: bool = False,
    **options: object,
) -> Redriven:
    """Send dead letters back, those that lie in the topic `letters` now and were not sent before.

    `topic`: only those that came from there; the others are passed over for good. `options` are
    those of every client, `bootstrap_servers` first.
    """
    with Redrive(letters, topic, dict(options)) as work:
        return work.run(count_max, dry_run=dry_run)


class Redrive:
    """One run over a topic of letters."""

    def __init__(self, letters: str, topic: str | None, options: Mapping[str, object]) -> None:
        self._letters = letters
        self._topic = topic
        self._options = cast(Any, dict(options))
        self.group_id = f"redrive-{letters}"
        self._reader: Consumer[Any, Any] = Consumer(
            **self._options,
            group_id=self.group_id,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        self._originals: Consumer[Any, Any] | None = None

    def __enter__(self) -> Redrive:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        if self._originals is not None:
            self._originals.close()

    def run(self, count_max: int | None, *, dry_run: bool) -> Redriven:
        found = sorted(self._reader.partitions_for_topic(self._letters) or ())
        partitions = [TopicPartition(self._letters, each) for each in found]
        # What dies again meanwhile comes behind these ends: it is for the next run.
        ends = self._reader.end_offsets(partitions)
        total = Redriven()
        if not partitions:
            return total
        if dry_run:
            return self._each(partitions, ends, count_max, None)
        with Producer(
            **self._options,
            transactional_id=self.group_id,
            transaction_timeout_ms=TRANSACTION_MS,
        ) as producer:
            producer.init_transactions()  # ends what another run has left open, and fences it
            return self._each(partitions, ends, count_max, producer)

    def _each(
        self,
        partitions: list[TopicPartition],
        ends: Mapping[TopicPartition, int],
        count_max: int | None,
        producer: Producer[Any, Any] | None,
    ) -> Redriven:
        self._reader.assign(partitions)
        total = Redriven()
        quiet = 0
        while quiet < QUIET_POLLS_MAX:
            left = [each for each in partitions if (self._reader.position(each) or 0) < ends[each]]
            wanted = LETTERS_PER_STEP
            if count_max is not None:
                wanted = min(wanted, count_max - sum(total))
            if not left or wanted <= 0:
                break
            polled = self._reader.poll(timeout_ms=POLL_MS, max_records=wanted)
            step = [
                each
                for records in polled.values()
                for each in records
                if each.offset < ends[TopicPartition(each.topic, each.partition)]
            ]
            quiet = 0 if step else quiet + 1
            if step:
                done = self._step(step, producer)
                total = Redriven(*(sum(pair) for pair in zip(total, done, strict=True)))
        return total

    def _step(self, step: list[Letter], producer: Producer[Any, Any] | None) -> Redriven:
        """Send these letters back in one transaction with how far that is."""
        if producer is None:
            return self._send(step, None)
        offsets = {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset + 1)
            for each in step
        }
        with producer.transaction():
            done = self._send(step, producer)
            producer.send_offsets_to_transaction(offsets, self.group_id)
        return done

    def _send(self, step: list[Letter], producer: Producer[Any, Any] | None) -> Redriven:
        sent = gone = unknown = 0
        for letter in step:
            origin = origin_of(letter)
            if origin is None:
                unknown += 1
                continue
            if self._topic is not None and origin.partition.topic != self._topic:
                continue
            record, headers = letter, own_headers(letter)
            if not is_ours(letter):
                original = self._original(origin)
                if original is not None:
                    record, headers = original, list(original.headers)
                elif letter.key is None and letter.value is None:
                    gone += 1
                    continue
            sent += 1
            if producer is not None:
                topic = origin.partition.topic
                producer.send(topic, record.value, key=record.key, headers=headers)
        return Redriven(sent, gone, unknown)

    def _original(self, origin: Origin) -> Letter | None:
        """The record that a letter is about, if it is still there."""
        if self._originals is None:
            self._originals = Consumer(**self._options, auto_offset_reset="earliest")
        reader = self._originals
        if origin.partition.partition not in (
            reader.partitions_for_topic(origin.partition.topic) or ()
        ):
            return None
        if not (
            reader.beginning_offsets([origin.partition])[origin.partition]
            <= origin.offset
            < reader.end_offsets([origin.partition])[origin.partition]
        ):
            return None
        reader.assign([origin.partition])
        reader.seek(origin.partition, origin.offset)
        for records in reader.poll(timeout_ms=POLL_MS * QUIET_POLLS_MAX, max_records=1).values():
            for record in records:
                if record.offset == origin.offset:  # else compaction has taken it
                    return record
        return None
