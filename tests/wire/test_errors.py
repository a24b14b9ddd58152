"""Error codes."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode


def test_a_code_is_a_number_with_a_meaning() -> None:
    """It goes onto the wire as it is, and says what it means and whether to try again."""
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1


def test_codes_have_no_gap_and_each_has_a_sentence() -> None:
    """From -1 on, one after the other."""
    assert sorted(ErrorCode) == list(range(-1, len(ErrorCode) - 1))
    for code in ErrorCode:
        assert code.message.endswith(".")
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
