"""What the handlers of new group protocols need: checks of a request, ids as Kafka has them."""

from __future__ import annotations

import base64

from ottla.coordinator.new_group import Refused
from ottla.wire.errors import ErrorCode

MEMBER_ID_CHARS_MAX = 36


def refuse_invalid(invalid: bool, message: str) -> None:
    """INVALID_REQUEST with Kafka's message, if the condition holds."""
    if invalid:
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def uuid_text(uuid: bytes) -> str:
    """16 bytes as Kafka's Uuid prints them: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def is_member_id(member_id: str | None) -> bool:
    """Whether a share group's member may have this id: a Uuid as text is the longest."""
    return member_id is not None and 0 < len(member_id) <= MEMBER_ID_CHARS_MAX
