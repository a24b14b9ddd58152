"""DeleteShareGroupOffsets (key 92): a share group forgets topics (KIP-932)."""

from ..schema import (
    NO_UUID,
    Int16,
    Int32,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
)


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(
    RequestFor["DeleteShareGroupOffsetsResponse"], key=92, versions=(0, 0), flexible=0
):
    group_id: String = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    error_code: Int16 = 0
    error_message: NullableString = None


class DeleteShareGroupOffsetsResponse(Struct, key=92, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
