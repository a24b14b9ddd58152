"""A controller whose queue of requests is full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.cluster import request_queue
from ottla.cluster.requests import NewTopic, TopicRef
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario


def test_the_queue_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is refused with a code that clients retry; the others are done."""
    monkeypatch.setattr(request_queue, "REQUESTS_WAITING_MAX", 3)

    async def scenario(harness: ControllerHarness) -> None:
        outcomes = await asyncio.gather(
            *(harness.create(NewTopic(f"t{i}", 1, 1)) for i in range(6))
        )
        codes = [outcome.error_code for (outcome,) in outcomes]
        assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert ErrorCode.REQUEST_TIMED_OUT.retriable
        assert set(harness.controller.image.topics) == {"t0", "t1", "t2"}

    run_scenario(tmp_path, scenario)


def test_a_confirmation_waits_until_the_queue_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker says once that a topic's folders are gone: the note of the deletion goes, too."""

    async def scenario(harness: ControllerHarness) -> None:
        (made,) = await harness.create(NewTopic("t", 1, 1))
        await harness.controller.delete_topics([TopicRef("t")])
        monkeypatch.setattr(request_queue, "REQUESTS_WAITING_MAX", 3)
        await asyncio.gather(
            *(harness.create(NewTopic(f"t{i}", 1, 1)) for i in range(3)),
            harness.controller.confirm_deletions(1, [made.topic_id]),
        )
        assert harness.controller.image.deletions == {}

    run_scenario(tmp_path, scenario)
