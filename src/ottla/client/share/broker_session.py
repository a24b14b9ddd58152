"""The share session with one broker: what is fetched there and acknowledged (KIP-932).

One request is under way at a time, for the broker counts them. Acknowledgements go with the next
fetch, or by themselves if nothing is to be fetched. All of it runs in the background thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ottla.wire.api import share_acknowledge as acknowledging
from ottla.wire.api import share_fetch as fetching
from ottla.wire.errors import ErrorCode

from ..errors import KafkaError, error_for
from ..network.cluster_client import Client
from ..typed_config import ShareConsumerConfig
from .structs import AcknowledgeType, Batch

INITIAL, FINAL, EPOCH_MAX = 0, -1, 0x7FFF_FFFF
CHANNEL = "share"
RECORD_LIMIT = 1
LOST = {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}

Place = tuple[bytes, int]
Answer = Callable[[KafkaError | None], object]


class Said(NamedTuple):
    """Acknowledgements of one partition that are to be sent, and who wants to know."""

    place: Place
    batches: list[Batch]
    answer: Answer


Take = Callable[[Any, list[Said]], None]


class BrokerSession:
    """One broker's session of this member."""

    def __init__(
        self,
        client: Client[ShareConsumerConfig],
        node_id: int,
        group_id: str,
        member_id: str,
        on_fetched: Callable[[BrokerSession, fetching.ShareFetchResponse], object],
        on_failed: Callable[[BrokerSession, BaseException], object],
    ) -> None:
        self.client = client
        self.node_id = node_id
        self.wanted: set[Place] = set()  # the partitions that this broker leads
        self.busy = False
        self.waits_to_fetch = False
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = INITIAL
        self._known: set[Place] = set()  # as the broker knows them
        self._to_say: list[Said] = []
        self._on_fetched = on_fetched
        self._on_failed = on_failed
        self._closing: Future[None] | None = None

    def say(self, said: list[Said]) -> None:
        self._to_say += said
        self._next()

    def fetch(self) -> None:
        """Ask for records, with the request under way or after it."""
        self.waits_to_fetch = True
        self._next()

    def close(self) -> Future[None]:
        """Say what is left, then end the session."""
        closing: Future[None] = Future()
        self._closing = closing
        self.waits_to_fetch = False
        self._next()
        return closing

    def _next(self) -> None:
        if self.busy or self.client.closed:
            return
        if self._epoch == INITIAL:
            self._fail_said(error_for(ErrorCode.SHARE_SESSION_NOT_FOUND))
            if self._closing is not None:
                self._closing.set_result(None)
                self._closing = None
            elif self.waits_to_fetch and self.wanted:
                self._fetch()
        elif self._closing is not None:
            self._acknowledge(FINAL)
        elif any(AcknowledgeType.RENEW in each.types for said in self._to_say for each in said[1]):
            self._acknowledge(self._epoch)
        elif self.waits_to_fetch:
            self._fetch()
        elif self._to_say:
            self._acknowledge(self._epoch)

    # ---- fetching --------------------------------------------------------------------------------

    def _fetch(self) -> None:
        self.waits_to_fetch = False
        config = self.client.config
        said, self._to_say = self._to_say, []
        batches: dict[Place, list[Batch]] = {}
        for place, found, _ in said:
            batches.setdefault(place, []).extend(found)
        wanted = set(self.wanted)
        topics: dict[bytes, list[fetching.FetchPartition]] = {}
        for place in sorted({*(wanted - self._known), *batches}):
            topics.setdefault(place[0], []).append(
                fetching.FetchPartition(
                    partition_index=place[1],
                    acknowledgement_batches=[
                        fetching.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=types
                        )
                        for first, last, types in sorted(batches.get(place, []))
                    ],
                )
            )
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, each in self._known - wanted:
            forgotten.setdefault(topic_id, []).append(each)
        request = fetching.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=config["fetch_max_wait_ms"],
            min_bytes=config["fetch_min_bytes"],
            max_bytes=config["fetch_max_bytes"],
            max_records=config["max_poll_records"],
            batch_size=config["max_poll_records"],
            share_acquire_mode=RECORD_LIMIT
            if config["share_acquire_mode"] == "record_limit"
            else 0,
            topics=[
                fetching.FetchTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in topics.items()
            ],
            forgotten_topics_data=[
                fetching.ForgottenTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in forgotten.items()
            ],
        )
        self._known = {*wanted, *batches}
        self._send(request, said, self._fetched)

    def _fetched(self, response: fetching.ShareFetchResponse, said: list[Said]) -> None:
        errors = {
            (topic.topic_id, each.partition_index): each.acknowledge_error_code
            for topic in response.responses
            for each in topic.partitions
        }
        answer_each(said, errors)
        self._on_fetched(self, response)

    # ---- acknowledging ---------------------------------------------------------------------------

    def _acknowledge(self, epoch: int) -> None:
        said, self._to_say = self._to_say, []
        batches: dict[Place, list[Batch]] = {}
        for place, found, _ in said:
            batches.setdefault(place, []).extend(found)
        topics: dict[bytes, list[acknowledging.AcknowledgePartition]] = {}
        for place, found in batches.items():
            topics.setdefault(place[0], []).append(
                acknowledging.AcknowledgePartition(
                    partition_index=place[1],
                    acknowledgement_batches=[
                        acknowledging.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=types
                        )
                        for first, last, types in sorted(found)
                    ],
                )
            )
        renews = any(
            AcknowledgeType.RENEW in each.types for found in batches.values() for each in found
        )
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[
                acknowledging.AcknowledgeTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in topics.items()
            ],
        )
        self._send(request, said, self._acknowledged)

    def _acknowledged(
        self, response: acknowledging.ShareAcknowledgeResponse, said: list[Said]
    ) -> None:
        errors = {
            (topic.topic_id, each.partition_index): each.error_code
            for topic in response.responses
            for each in topic.partitions
        }
        answer_each(said, errors)

    # ---- one request -----------------------------------------------------------------------------

    def _send(
        self, request: Any, said: list[Said], take: Callable[[Any, list[Said]], None]
    ) -> None:
        self.busy = True
        config = self.client.config
        asked: Future[Any] = self.client.submit(
            self.node_id,
            request,
            timeout_ms=config["fetch_max_wait_ms"] + config["request_timeout_ms"],
            channel=CHANNEL,
        )
        is_last = request.share_session_epoch == FINAL
        asked.add_done_callback(lambda answer: self._answered(answer, said, take, is_last))

    def _answered(
        self,
        answer: Future[Any],
        said: list[Said],
        take: Take,
        is_last: bool,
    ) -> None:
        self.busy = False
        problem = answer.exception()
        response = None if problem is not None else answer.result()
        if response is not None and response.error_code:
            problem = error_for(response.error_code, response.error_message)
        if problem is not None:
            # The session is gone with its connection, or at an epoch that is not known here.
            self._epoch, self._known = INITIAL, set()
            for each in said:
                each.answer(
                    problem if isinstance(problem, KafkaError) else KafkaError(str(problem))
                )
            self._on_failed(self, problem)
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
            take(response, said)
        if is_last:
            self._epoch, self._known = INITIAL, set()
        self._next()

    def _fail_said(self, problem: KafkaError) -> None:
        said, self._to_say = self._to_say, []
        for each in said:
            each.answer(problem)


def answer_each(said: list[Said], errors: dict[Place, int]) -> None:
    for place, _, answer in said:
        code = errors.get(place, 0)
        answer(error_for(code) if code else None)
