"""DeleteTopics (key 20): remove topics.

v1 throttle time · v3 TOPIC_DELETION_DISABLED may come back · v4 flexible · v5 error message · v6
topics by id.
"""

from ..schema import NO_UUID, Int16, Int32, NullableString, RequestFor, String, Struct, Uuid, since


class DeleteTopicState(Struct):
    name: NullableString = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(RequestFor["DeleteTopicsResponse"], key=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = since(6)
    topic_names: list[String] = since(1, 5)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: NullableString = since(0, nullable=6)
    topic_id: Uuid = since(6)
    error_code: Int16 = 0
    error_message: NullableString = since(5, default=None)


class DeleteTopicsResponse(Struct, key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
