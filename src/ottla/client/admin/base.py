"""How the admin asks: any broker, the controller, a partition's leader, a group's coordinator.

Errors that may pass are retried by the core until `request_timeout_ms`; a leader or coordinator
that has moved is looked up again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.schema import RequestFor, Struct

from ..errors import raise_for
from ..network.cluster_client import ANY, CONTROLLER, AnyClient
from ..network.cluster_metadata import topic_trouble
from ..network.coordinators import COORDINATOR_GONE
from ..structs import TopicPartition
from ..typed_config import ClientConfig

if TYPE_CHECKING:
    from ottla.wire.api.metadata import MetadataResponse

T = TypeVar("T")
S = TypeVar("S", bound=Struct)
# Partitions as a caller may name them: `{topic: numbers}`, `TopicPartition`s, or the names of
# topics, for all partitions of each.
Chosen: TypeAlias = Mapping[str, Iterable[int]] | Iterable[TopicPartition | str]
MOVED_CONTROLLER = {ErrorCode.NOT_CONTROLLER}
MOVED_COORDINATOR = {*COORDINATOR_GONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class AdminBase:
    """The core, and the ways to ask through it."""

    config: ClientConfig
    _client: AnyClient

    def _ask(
        self,
        message: RequestFor[S],
        node_id: int = ANY,
        *,
        check: Callable[[S], object] = lambda answer: None,
        timeout_ms: float | None = None,
        version_max: int = VERSION_MAX,
    ) -> S:
        """The answer; `check` raises what is wrong with it, and retriable errors are retried."""

        def attempt(left_ms: float) -> S:
            asked = self._client.submit(
                node_id, message, timeout_ms=left_ms, version_max=version_max
            )
            answer = self._client.wait(asked)
            check(answer)
            return answer

        return self._client.retrying(attempt, timeout_ms)

    def _ask_controller(self, message: RequestFor[S], check: Callable[[S], object]) -> S:
        """Ask again while it is another one; every other error is the answer, not a reason to wait.

        (An unknown topic is tolerable for a consumer; for a deletion it is an error.)
        """
        if self._client.cluster.controller_id < 0:
            self._client.bootstrap()
        answer = self._ask(
            message, CONTROLLER, check=lambda got: raise_if_in(got, MOVED_CONTROLLER)
        )
        check(answer)
        return answer

    def _ask_coordinator(
        self,
        key: str,
        message: RequestFor[S],
        check: Callable[[S], object] = lambda answer: None,
        *,
        kind: str = "group",
        node_id: int | None = None,
        version_max: int = VERSION_MAX,
    ) -> S:
        """Ask the coordinator of a group or transactional id."""

        def attempt(left_ms: float) -> S:
            found = node_id
            if found is None:
                found = self._client.wait(self._client.coordinator(key, kind), left_ms)
            try:
                answer = self._client.wait(
                    self._client.submit(found, message, timeout_ms=left_ms, version_max=version_max)
                )
                raise_if_in(answer, MOVED_COORDINATOR)
                check(answer)
            except Exception:
                # It is another one now, or gone: a broker that does not answer is not asked again.
                self._client.coordinators.forget(key, kind)
                raise
            return answer

        return self._client.retrying(attempt)

    def _metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Metadata of these topics, or of all; nothing is created by asking."""
        from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic

        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self._ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))

    def _timeout(self, timeout_ms: int | None) -> int:
        return int(self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms)

    def _broker_ids(self) -> list[int]:
        return sorted(self._client.bootstrap().brokers)

    def _chosen(self, given: Chosen) -> dict[str, list[int]]:
        """The partitions that are meant, by topic; raises for the name of an unknown topic."""
        if isinstance(given, Mapping):
            return {name: list(indexes) for name, indexes in given.items()}
        found = list(given)
        names = [each for each in found if isinstance(each, str)]
        chosen = by_topic(TopicPartition(*each) for each in found if not isinstance(each, str))
        for topic in self._metadata(names).topics if names else ():
            raise_for(topic.error_code, f"there is no topic {topic.name!r}")
            indexes = sorted(each.partition_index for each in topic.partitions)
            chosen[str(topic.name)] = indexes
        return chosen

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """These partitions by the brokers that lead them; raises when one has no leader."""
        wanted = list(partitions)
        names = sorted({each.topic for each in wanted})
        self._client.metadata.track(names)
        cluster = self._client.wait(self._client.refresh(names))
        grouped: dict[int, list[TopicPartition]] = defaultdict(list)
        for each in wanted:
            topic = cluster.topics.get(each.topic)
            trouble = topic_trouble(each.topic, topic, auto_create=False)
            if topic is not None and trouble is not None:
                raise_for(*trouble)
            leader = cluster.leader(each.topic, each.partition)
            if cluster.partition(each.topic, each.partition) is None:
                raise_for(
                    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    f"there is no partition {each.topic}-{each.partition}",
                )
            if leader < 0:
                raise_for(
                    int(ErrorCode.LEADER_NOT_AVAILABLE),
                    f"{each.topic}-{each.partition} has no leader now",
                )
            grouped[leader].append(each)
        return dict(grouped)

    def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        make: Callable[[list[TopicPartition]], RequestFor[S]],
        take: Callable[[S], Mapping[TopicPartition, T]],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, T]:
        """Ask each leader about its partitions; `take` reads an answer and raises its errors."""
        wanted = list(partitions)

        def attempt(left_ms: float) -> dict[TopicPartition, T]:
            results: dict[TopicPartition, T] = {}
            asked = [
                self._client.submit(leader, make(theirs), timeout_ms=left_ms)
                for leader, theirs in self._by_leader(wanted).items()
            ]
            for future in asked:
                results |= take(self._client.wait(future))
            return results

        return self._client.retrying(attempt, timeout_ms)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers under their topics, in order."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for each in sorted(partitions):
        grouped[each.topic].append(each.partition)
    return dict(grouped)


def text_of(code: int) -> str:
    try:
        return ErrorCode(code).message
    except ValueError:
        return f"error {code}"


class Result(Protocol):
    """A part of an answer that says how it went."""

    @property
    def error_code(self) -> int: ...


def raise_first(results: Iterable[Result]) -> None:
    """Raise the first error among results that have `error_code` and perhaps `error_message`."""
    for each in results:
        if each.error_code:
            text, name = getattr(each, "error_message", None), getattr(each, "name", None)
            if name and (not text or each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                text = f"{name}: {text or text_of(each.error_code)}"
            raise_for(each.error_code, text)


def raise_if_in(answer: Struct, codes: Iterable[int]) -> None:
    """Raise if one of these codes is anywhere in an answer: its parts fail together for them."""
    for field in type(answer).__schema__.fields:
        value = getattr(answer, field.name)
        if field.name == "error_code" and value in codes:
            raise_for(value)
        elif field.many and isinstance(field.kind, type):
            for each in value or ():
                raise_if_in(each, codes)
