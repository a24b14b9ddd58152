"""The comparison itself can fail, and the list of allowed differences is about something."""

from __future__ import annotations

import re

from ottla.broker.dispatch import HANDLERS
from tests.apache import messages
from tests.differential import cluster_deaths  # noqa: F401, registers its cases
from tests.differential.allowed import ALLOWED, LATER_APIS, OTHER_ANSWERS
from tests.differential.case import all_cases
from tests.differential.cluster_cases import CASES
from tests.differential.normal import Names, differences, normal


def test_every_allowance_says_why() -> None:
    """No allowed difference without a name of its own and a reason."""
    names = [each.name for each in ALLOWED] + [each.name for each in OTHER_ANSWERS]
    reasons = [each.reason for each in ALLOWED] + [each.reason for each in OTHER_ANSWERS]
    assert len(set(names)) == len(names)
    assert [reason for reason in reasons if len(reason) < 15] == []


def test_every_allowance_is_about_a_case() -> None:
    """An allowance whose case is gone must go too."""
    ids = [each.id for each in all_cases()]
    ids += [f"cluster-{body.__name__}" for _, body in CASES]
    for each in OTHER_ANSWERS:
        assert any(re.fullmatch(each.cases, case_id) for case_id in ids), each.name


def test_apis_that_are_served_are_compared() -> None:
    """An API that is left out of the comparison of ApiVersions is not served here."""
    assert LATER_APIS & HANDLERS.keys() == set()


def test_differences_are_found() -> None:
    """Another code, a missing field, another order, another type: each has its place named."""
    left = {"a": [{"code": 0, "name": None}], "b": [1, 2]}
    assert differences(left, left) == []
    for right, place in (
        ({"a": [{"code": 1, "name": None}], "b": [1, 2]}, "a[0].code"),
        ({"a": [{"code": 0}], "b": [1, 2]}, "a[0].name"),
        ({"a": [{"code": 0, "name": None}], "b": [2, 1]}, "b[0]"),
        ({"a": [{"code": False, "name": None}], "b": [1, 2]}, "a[0].code"),
        ({"a": [], "b": [1, 2]}, "a"),
        ("connection closed", "answer"),
    ):
        assert differences(left, right)[0].startswith(f"{place}:")


def test_ids_are_compared_by_what_they_name() -> None:
    """Two brokers' ids for one topic are equal, an id that stands for another topic is not."""
    topics = {b"1" * 16: "first", b"2" * 16: "second"}
    left, right = Names("left"), Names("right")
    left.topic_ids, right.topic_ids = topics, {b"9" * 16: "first", b"8" * 16: "second"}
    ours = normal("Fetch", {"topic_id": b"1" * 16}, left)
    assert differences(ours, normal("Fetch", {"topic_id": b"9" * 16}, right)) == []
    assert differences(ours, normal("Fetch", {"topic_id": b"8" * 16}, right))


def test_the_codec_of_the_suite_reads_what_it_writes() -> None:
    """Every request of every version, at its defaults, survives the way out and back."""
    for name, fact in messages.facts().items():
        for version in range(fact.lowest, fact.highest + 1):
            data = messages.encode(name, version, {})
            again = messages.encode(name, version, messages.decode(name, version, data))
            assert again == data, f"{name} v{version}"
