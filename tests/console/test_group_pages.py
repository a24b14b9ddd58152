"""Groups: the list, one group, and the reset of its offsets by each way to name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from ottla.client.admin import OffsetSpec, OffsetTimestamp
from ottla.client.errors import error_class
from ottla.client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.picture import ClusterPicture
from ottla.console.series import Measure, Point, Series, SeriesKey
from ottla.console.web.pages.groups import trend

from .pictures import HOSTILE, FakeHistory, browser, hostile_picture, picture
from .recording import RecordingAdmin

RESET = "/c/main/reset-group"
GROUP = "group-001"


def idle() -> ClusterPicture:
    """Nobody reads at the moment."""
    shown = picture()
    return replace(
        shown, groups={name: replace(each, members=()) for name, each in shown.groups.items()}
    )


def offsets(asked: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndTimestamp]:
    def at(spec: Any) -> int:
        if isinstance(spec, OffsetTimestamp):
            return 300 if spec < 2_000_000_000_000 else -1
        return 1000 if spec == OffsetSpec.LATEST else 10

    return {each: OffsetAndTimestamp(at(spec), -1, 0) for each, spec in asked.items()}


def admin(**more: Any) -> RecordingAdmin:
    committed = {
        TopicPartition("topic-0001", 0): OffsetAndMetadata(100),
        TopicPartition("topic-0001", 1): OffsetAndMetadata(990),
    }
    return RecordingAdmin(
        **{
            "list_group_offsets": {GROUP: committed},
            "list_partition_offsets": offsets,
            "alter_group_offsets": lambda group, chosen: dict.fromkeys(chosen),
            "delete_groups": {GROUP: "OK"},
            **more,
        }
    )


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("", "group-000"),
        ("sort=lag", "group-002"),
        ("sort=lag_ms&desc=0", "group-000"),
        ("q=topic-0001", "group-001"),
    ],
)
def test_groups_are_sorted_and_searched(query: str, first: str) -> None:
    """By lag in records or time; a search goes through their topics too."""
    text = browser(picture()).get(f"/c/main/groups?{query}").text
    assert text.index(f"/groups/{first}") == text.index("/groups/group-")


def test_a_group_shows_what_is_left_to_read() -> None:
    """Each partition with its offset, lag in records and time, and who reads it."""
    pages = browser(picture())
    text = pages.get(f"/c/main/groups/{GROUP}").text
    assert "40 ms" in text  # partition 2 is behind by so much
    assert "group-001-member-1" in text
    text = pages.get(f"/c/main/groups/{GROUP}?tab=members").text
    assert "0, 1, 2" in text
    assert pages.get("/c/main/groups/none").status_code == 404


def test_any_name_of_a_group_has_a_page() -> None:
    """Groups may be named by anything: slashes, blanks, other scripts."""
    shown = picture()
    for name in ("a/b", "a b?c#d", "消费者"):
        group = replace(shown.groups[GROUP], group_id=name)
        pages = browser(replace(shown, groups={name: group}))
        assert pages.get(f"/c/main/groups/{quote(name, safe='')}").status_code == 200


class History(FakeHistory):
    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = values

    def read(self, key: SeriesKey, from_ms: int, to_ms: int, points_max: int = 400) -> Series:
        points = [Point(i * 10_000, v, v, v) for i, v in enumerate(self.values)]
        return Series(10_000, points)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 10, 20, 30, 40], 1.0), ([50, 40, 30, 20], -1.0), ([7, 7, 7, 7], 0.0), ([1, 2], None)],
)
def test_the_trend_is_the_slope_of_the_lag(values: list[float], expected: float | None) -> None:
    """Records per second; unknown with too little history."""
    key = SeriesKey("main", Measure.GROUP_LAG, GROUP)
    found = trend(History(values), key, 1_000_000)
    assert found == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"to": "earliest"}, "topic-0001/0:10,1:10,2:10"),
        ({"to": "latest"}, "topic-0001/0:1000,1:1000,2:1000"),
        ({"to": "offset", "offset": "55", "partition": "1"}, "topic-0001/1:55"),
        ({"to": "offset", "offset": "5"}, "topic-0001/0:10,1:10,2:10"),
        ({"to": "offset", "offset": "99999"}, "topic-0001/0:1000,1:1000,2:1000"),
        ({"to": "time", "time": "2026-01-01T00:00:00"}, "topic-0001/0:300,1:300,2:300"),
        ({"to": "time", "time": "2999-01-01T00:00Z"}, "topic-0001/0:1000,1:1000,2:1000"),
        ({"to": "ago", "amount": "5", "unit": "hours"}, "topic-0001/0:300,1:300,2:300"),
        ({"to": "shift", "shift": "-50"}, "topic-0001/0:50,1:940"),
        ({"to": "shift", "shift": "50"}, "topic-0001/0:150,1:1000"),
    ],
)
def test_a_reset_is_previewed_then_done(form: dict[str, str], expected: str) -> None:
    """Each way to say where, kept between first offset and end; what was shown is committed."""
    asked = admin()
    pages = browser(idle(), asked)
    answer = pages.submit(RESET, {"group": GROUP, **form})
    assert f'name="offsets" value="{expected}"' in answer.text
    assert not asked.changes()
    done = pages.submit(RESET, {"group": GROUP, "offsets": expected, "step": "do"})
    assert "goes on there" in done.text
    [(_, (group, sent), _)] = asked.changes()
    assert group == GROUP
    assert ",".join(f"{at.partition}:{to}" for at, to in sent.items()) == expected.split("/")[1]
    [entry] = pages.access.entries
    assert (entry.action, entry.target, entry.detail) == ("reset-group", GROUP, expected)


def test_the_preview_says_what_is_read_again_and_skipped() -> None:
    """From 100 and 990 to 300: 690 again, 200 skipped."""
    form = {"group": GROUP, "to": "time", "time": "2026-01-01T00:00"}
    text = browser(idle(), admin()).submit(RESET, form).text
    assert "690 records will be read again, 200 will be skipped" in text
    assert "+200" in text
    assert "-690" in text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"to": "moon"}, "to: one of"),
        ({"to": "offset"}, "offset: 0 or more"),
        ({"to": "shift", "shift": "0"}, "shift: a number"),
        ({"to": "ago", "amount": "-1"}, "ago: a number"),
        ({"to": "time", "time": "soon"}, "time: such as"),
        ({"to": "latest", "topic": "topic-0001", "partition": "77"}, "choose a topic"),
    ],
)
def test_a_reset_that_cannot_be_is_said(form: dict[str, str], said: str) -> None:
    """The form comes back with the reason, nothing is done."""
    asked = admin()
    answer = browser(idle(), asked).submit(RESET, {"group": GROUP, **form})
    assert answer.status_code == 422
    assert said in answer.text
    assert not asked.changes()


def test_a_group_with_members_is_only_previewed() -> None:
    """Kafka refuses offsets of a group that reads; the preview says so and has no button."""
    answer = browser(picture(), admin()).submit(RESET, {"group": GROUP, "to": "earliest"})
    assert "Stop its consumers" in answer.text
    assert "Moves by" in answer.text
    assert '<button type="submit" class="main' not in answer.text


def test_refused_partitions_are_named() -> None:
    """The commit's error of each partition is shown, and the change counts as failed."""
    refused = error_class(25)
    asked = admin(alter_group_offsets=lambda group, chosen: dict.fromkeys(chosen, refused))
    pages = browser(idle(), asked)
    fields = {"group": GROUP, "offsets": "topic-0001/0:10", "step": "do"}
    assert "1 of 1 were not set: topic-0001-0" in pages.submit(RESET, fields).text
    assert pages.access.entries[-1].result == "failed"


def test_a_group_is_deleted_after_its_name_was_typed() -> None:
    """Only an idle one, with the name typed; the cluster's refusal is shown."""
    fields = {"group": GROUP, "step": "do", "confirm": GROUP}
    asked = admin()
    pages = browser(idle(), asked)
    assert (
        "nothing was changed"
        in pages.submit("/c/main/delete-group", {**fields, "confirm": "x"}).text
    )
    assert not asked.changes()
    assert "was deleted" in pages.submit("/c/main/delete-group", fields).text
    pages = browser(idle(), admin(delete_groups={GROUP: "NonEmptyGroupError"}))
    assert "NonEmptyGroupError" in pages.submit("/c/main/delete-group", fields).text


def test_operating_a_group_needs_all_of_its_topics() -> None:
    """An operator of one topic resets there, not the group of another, and deletes neither."""
    principal = Principal("tom", (Grant(Role.OPERATOR, "*", "topic-0001"),))
    asked = admin()
    pages = browser(idle(), asked, principal=principal)
    other = {"group": "group-002", "offsets": "topic-0002/0:1", "step": "do"}
    assert pages.submit(RESET, other).status_code == 403
    sneaky = {"group": GROUP, "topic": "topic-0001", "offsets": "topic-0002/0:1", "step": "do"}
    assert pages.submit(RESET, sneaky).status_code == 403
    assert pages.submit("/c/main/delete-group", {"group": "group-002"}).status_code == 403
    assert not asked.changes()
    fine = {"group": GROUP, "topic": "topic-0001", "offsets": "topic-0001/0:10", "step": "do"}
    assert "goes on there" in pages.submit(RESET, fine).text


def test_totals_of_partly_hidden_groups_are_not_shown() -> None:
    """Who may not view all topics of a group gets no series of the group as a whole."""
    shown = picture()
    mixed = replace(
        shown.groups[GROUP], lags=shown.groups[GROUP].lags + shown.groups["group-002"].lags
    )
    principal = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0001"),))
    pages = browser(replace(shown, groups={GROUP: mixed}), principal=principal)
    text = pages.get(f"/c/main/groups/{GROUP}").text
    assert "topic-0002" not in text
    assert "All topics" not in text
    assert not pages.fake_history.asked


@pytest.mark.parametrize("query", ["", "?tab=members"])
def test_a_group_is_never_markup(query: str) -> None:
    """Names, clients, hosts and metadata are shown as text."""
    pages = browser(hostile_picture(), admin())
    text = pages.get("/c/main/groups").text
    text += pages.get(f"/c/main/groups/{quote(HOSTILE, safe='')}{query}").text
    text += pages.get(f"/c/main/reset-group?group={quote(HOSTILE, safe='')}").text
    text += pages.get(f"/c/main/delete-group?group={quote(HOSTILE, safe='')}").text
    assert text.count("alert(1)") > 8
    assert "<script>alert" not in text
    assert "<img" not in text
