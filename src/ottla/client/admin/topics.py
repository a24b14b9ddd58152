"""Topics and partitions: list, describe, create, grow, delete."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ..argument_checks import check_names
from ..errors import KafkaError, KafkaTimeoutError
from .base import AdminBase, raise_first
from .types import (
    ConfigSourceType,
    NewPartitions,
    NewTopic,
    PartitionOptions,
    TopicCursor,
    TopicOptions,
    to_dict,
)

POLL_S = 0.1


class Topics(AdminBase):
    """The part of the admin that knows topics."""

    def list_topics(self) -> list[str]:
        """The names of all topics, internal ones too."""
        return [topic.name for topic in self._metadata().topics if topic.name is not None]

    def describe_topics(
        self, topics: Iterable[str | uuid.UUID] | None = None
    ) -> list[dict[str, Any]]:
        """Metadata of these topics (names or ids), or of all."""
        from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic

        asked = None
        if topics is not None:
            check_names(topics, "describe_topics")
            asked = [
                MetadataRequestTopic(name=None, topic_id=topic.bytes)
                if isinstance(topic, uuid.UUID)
                else MetadataRequestTopic(name=topic)
                for topic in topics
            ]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        plain: list[dict[str, object]] = to_dict(self._ask(request).topics)
        return plain

    def describe_topic_partitions(
        self,
        topics: Iterable[str],
        response_partition_limit: int = 2000,
        cursor: TopicCursor | None = None,
    ) -> dict[str, Any]:
        """A page of partitions with their eligible leaders (KIP-966), and where the next begins."""
        from ottla.wire.api.describe_topic_partitions import (
            Cursor,
            DescribeTopicPartitionsRequest,
            TopicRequest,
        )

        answer = self._ask(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in sorted(topics)],
                response_partition_limit=response_partition_limit,
                cursor=Cursor(**cursor) if cursor else None,
            )
        )
        return {"topics": to_dict(answer.topics), "next_cursor": to_dict(answer.next_cursor)}

    def create_topics(
        self,
        new_topics: Iterable[str | NewTopic] | Mapping[str, TopicOptions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: names, `NewTopic`s, or a dict of name to options.

        The options are `num_partitions`, `replication_factor`, `assignments` and `configs`.
        """
        from ottla.wire.api.create_topics import (
            CreatableReplicaAssignment,
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        wanted = [
            CreatableTopic(
                name=new.name,
                num_partitions=new.num_partitions,
                replication_factor=new.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in new.replica_assignments.items()
                ],
                configs=[
                    CreatableTopicConfig(name=name, value=None if value is None else str(value))
                    for name, value in new.topic_configs.items()
                ],
            )
            for new in as_new_topics(new_topics)
        ]
        answer = self._ask_controller(
            CreateTopicsRequest(
                topics=wanted, timeout_ms=self._timeout(timeout_ms), validate_only=validate_only
            ),
            lambda found: raise_first(found.topics) if raise_errors else None,
        )
        if wait_for_metadata and not validate_only:
            self.wait_for_topics([topic.name for topic in wanted])
        result: dict[str, Any] = {"topics": to_dict(answer.topics)}
        for topic in result["topics"]:
            topic["configs"] = {
                config.pop("name"): config
                | {"config_source": ConfigSourceType(max(config["config_source"], 0)).name}
                for config in topic["configs"] or ()
            }
        return result

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until each topic is known with a leader for every partition."""
        names = list(topic_names)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                found = {topic["name"]: topic for topic in self.describe_topics(names)}
            except KafkaError:
                found = {}
            missing = [
                name
                for name in names
                if name not in found
                or found[name]["error_code"]
                or not found[name]["partitions"]
                or any(each["leader_id"] < 0 for each in found[name]["partitions"])
            ]
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"not ready after {timeout_ms} ms: {', '.join(missing)}")
            time.sleep(POLL_S)

    def delete_topics(
        self,
        topics: Iterable[str | uuid.UUID],
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Delete topics by name or id."""
        from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState

        check_names(topics, "delete_topics")
        states = [
            DeleteTopicState(topic_id=topic.bytes)
            if isinstance(topic, uuid.UUID)
            else DeleteTopicState(name=topic)
            for topic in topics
        ]
        answer = self._ask_controller(
            DeleteTopicsRequest(
                topics=states,
                topic_names=[state.name for state in states if state.name is not None],
                timeout_ms=self._timeout(timeout_ms),
            ),
            lambda found: raise_first(found.responses) if raise_errors else None,
        )
        return {"topics": to_dict(answer.responses)}

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | PartitionOptions | NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Grow topics to so many partitions; `{"count": …, "assignments": [[…]]}` places them."""
        from ottla.wire.api.create_partitions import (
            CreatePartitionsAssignment,
            CreatePartitionsRequest,
            CreatePartitionsTopic,
        )

        wanted = []
        for name, given in topic_partitions.items():
            count, assignments = as_count(given)
            placed = [
                CreatePartitionsAssignment(broker_ids=list(brokers))
                for brokers in assignments or ()
            ]
            wanted.append(CreatePartitionsTopic(name=name, count=count, assignments=placed or None))
        answer = self._ask_controller(
            CreatePartitionsRequest(
                topics=wanted, timeout_ms=self._timeout(timeout_ms), validate_only=validate_only
            ),
            lambda found: raise_first(found.results) if raise_errors else None,
        )
        return {"results": to_dict(answer.results)}


def as_new_topics(
    given: Iterable[str | NewTopic] | Mapping[str, TopicOptions],
) -> list[NewTopic]:
    """Every way to name new topics, as one."""
    if isinstance(given, Mapping):
        return [
            NewTopic(
                name,
                options.get("num_partitions", -1),
                options.get("replication_factor", -1),
                options.get("assignments"),
                options.get("configs"),
            )
            for name, options in given.items()
        ]
    check_names(given, "create_topics")
    return [NewTopic(each) if isinstance(each, str) else each for each in given]


def as_count(
    given: int | PartitionOptions | NewPartitions,
) -> tuple[int, list[list[int]] | None]:
    if isinstance(given, NewPartitions):
        return given.total_count, given.new_assignments
    if isinstance(given, Mapping):
        return given["count"], given.get("assignments")
    return int(given), None
