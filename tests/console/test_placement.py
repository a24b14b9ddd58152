"""Reassignments and elections: plans, previews, progress."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ottla.client.admin import ElectionType
from ottla.client.errors import error_class
from ottla.client.structs import TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.collecting.assemble import with_progress
from ottla.console.collecting.known import Known
from ottla.console.picture import ClusterPicture, PartitionPicture, ReassignmentPicture
from ottla.console.web.spreading import spread

from .pictures import browser, picture
from .recording import RecordingAdmin

TOPIC = "topic-0000"
OPERATOR = Principal("olga", (Grant(Role.OPERATOR),))


def partitions(*replicas: tuple[int, ...]) -> list[PartitionPicture]:
    return [PartitionPicture(index, each[0], 0, each, each) for index, each in enumerate(replicas)]


def test_replicas_that_lie_well_stay() -> None:
    """On the same brokers an even topic does not change."""
    now = partitions((1, 2), (2, 3), (3, 1))
    then = spread(now, [1, 2, 3], 2, {})
    assert {index: set(each) for index, each in then.items()} == {0: {1, 2}, 1: {2, 3}, 2: {3, 1}}
    assert sorted(each[0] for each in then.values()) == [1, 2, 3]


@pytest.mark.parametrize(("brokers", "factor"), [([1, 2, 3, 4], 3), ([4, 5], 1), ([2], 1)])
def test_replicas_are_spread_evenly(brokers: list[int], factor: int) -> None:
    """Each broker holds and leads its part, no partition lies twice on one."""
    now = partitions(*[(1, 2, 3)] * 12)
    then = spread(now, brokers, factor, {})
    held = Counter(at for each in then.values() for at in each)
    led = Counter(each[0] for each in then.values())
    assert all(len(set(each)) == factor for each in then.values())
    assert max(held.values()) == 12 * factor // len(brokers)
    assert max(led.values()) <= -(-12 // len(brokers)) + 1


def test_racks_come_first() -> None:
    """The second replica goes to another rack where there is one."""
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    then = spread(partitions(*[(1,)] * 4), [1, 2, 3, 4], 2, racks)
    assert all(len({racks[at] for at in each}) == 2 for each in then.values())


def test_a_topic_is_reassigned() -> None:
    """Brokers and replicas chosen, a preview of each partition, and what it showed is sent."""
    admin = RecordingAdmin(reassignment_errors=lambda wanted: dict.fromkeys(wanted))
    pages = browser(picture(), admin)
    assert "On brokers" in pages.get(f"/c/main/reassign?topic={TOPIC}").text
    fields = {"topic": TOPIC, "broker": ["0", "1"], "replicas": "2"}
    preview = pages.submit("/c/main/reassign", fields)
    assert preview.status_code == 200
    assert "3 partitions change" in preview.text
    assert not admin.changes()
    done = pages.submit("/c/main/reassign", {"topic": TOPIC, "step": "do", "plan": "0:0-1,2:1-0"})
    assert "2 partitions of topic-0000 are being reassigned" in done.text
    wanted = {TopicPartition(TOPIC, 0): [0, 1], TopicPartition(TOPIC, 2): [1, 0]}
    assert admin.changes() == [("reassignment_errors", (wanted,), {})]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "choose those that shall hold"),
        ({"broker": "9"}, "no broker 9"),
        ({"broker": ["0", "1"], "replicas": "3"}, "from 1 to 2"),
    ],
)
def test_a_plan_that_cannot_be_is_said(fields: dict[str, str], text: str) -> None:
    """The form comes again with a sentence."""
    answer = browser(picture(), RecordingAdmin()).submit(
        "/c/main/reassign", {"topic": TOPIC, **fields}
    )
    assert answer.status_code == 422
    assert text in answer.text


def moving() -> ClusterPicture:
    shown = picture()
    reassignment = ReassignmentPicture(TOPIC, 1, (0, 1, 2), (2,), (0,), 250, 1000)
    return replace(shown, reassignments=(reassignment,))


def test_progress_is_shown_and_a_reassignment_cancelled() -> None:
    """How much was copied of how much; cancelling names the partitions that are under way."""
    admin = RecordingAdmin(reassignment_errors=lambda wanted: dict.fromkeys(wanted))
    pages = browser(moving(), admin)
    assert "25 %" in pages.get("/c/main/reassignments").text
    preview = pages.get(f"/c/main/cancel-reassignment?topic={TOPIC}")
    assert "stay" in preview.text
    fields = {"topic": TOPIC, "partition": ["1"], "step": "do"}
    assert "was cancelled" in pages.submit("/c/main/cancel-reassignment", fields).text
    wanted = {TopicPartition(TOPIC, 1): None}
    assert admin.changes() == [("reassignment_errors", (wanted,), {})]


def test_progress_is_what_the_new_replicas_have() -> None:
    """Of the leader's size, for each broker that is added; unknown until sizes are."""
    known = Known()
    each = ReassignmentPicture(TOPIC, 1, (0, 1, 2, 3), (2, 3), (0,))
    assert with_progress(each, known).progress is None
    at = TopicPartition(TOPIC, 1)
    known.leader_sizes[at] = 1000
    known.moving_sizes[at] = {2: 1200, 3: 500}
    assert with_progress(each, known).progress == 0.75


def test_preferred_leaders_are_elected() -> None:
    """Only those that another one leads; an operator may, but not unclean."""
    shown = picture()
    topic = shown.topics[TOPIC]
    first, *rest = topic.partitions
    other = replace(first, leader=first.replicas[1])
    gone = replace(rest[0], leader=None, isr=(rest[0].replicas[1],))
    topic = replace(topic, partitions=(other, gone, *rest[1:]))
    shown = replace(shown, topics={**shown.topics, TOPIC: topic})
    not_needed = error_class(84)
    admin = RecordingAdmin(
        elect_leaders=lambda kind, wanted, **_: {each: not_needed() for each in wanted}
    )
    pages = browser(shown, admin, principal=OPERATOR)
    assert "Elect preferred leaders" in pages.get("/c/main/reassignments").text
    assert f"{TOPIC}-0" in pages.get("/c/main/elect-leaders").text
    assert "1 leaders were elected" in pages.submit("/c/main/elect-leaders", {"step": "do"}).text
    [(_, (kind, wanted), _)] = admin.changes()
    assert (kind, wanted) == (ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)])
    unclean = {"how": "unclean", "step": "do", "confirm": "unclean"}
    assert pages.submit("/c/main/elect-leaders", unclean).status_code == 403
    everybody = browser(shown, admin)
    assert "are lost" in everybody.get("/c/main/elect-leaders?how=unclean").text
    everybody.submit("/c/main/elect-leaders", unclean)
    assert admin.changes()[-1][1] == (ElectionType.UNCLEAN, [TopicPartition(TOPIC, 1)])
