"""A round of all rules over pictures: who is watched, who gets which message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.console.alerts.machine import Alert, Event
from ottla.console.alerts.rounds import LINES_MAX, AlertKey, Round, look
from ottla.console.alerts.rules import (
    KINDS,
    Receiver,
    ReceiverKind,
    Rule,
    RuleError,
    Side,
    Silence,
    check_receiver,
    check_rule,
)
from ottla.console.alerts.settings import alerts_of
from ottla.console.alerts.words import condition_words
from ottla.console.picture import ClusterPicture, PartitionPicture
from ottla.console.series import Measure

from .pictures import TAKEN_MS, picture

LAG = Rule("lag", Measure.GROUP_LAG, threshold=5, for_s=0, receivers=("ops",))


def alerts_after(found: Round, before: dict[AlertKey, Alert]) -> dict[AlertKey, Alert]:
    after = dict(before)
    for change in found.changes:
        if change.after is None:
            after.pop(change.key, None)
        else:
            after[change.key] = change.after
    return after


def one_look(rule: Rule, of: ClusterPicture, now_ms: int = TAKEN_MS) -> list[str]:
    """The subjects that breach the rule at once."""
    found = look([replace(rule, for_s=0)], {of.name: of}, {}, [], now_ms)
    return sorted(each.key.subject for each in found.changes)


def test_one_message_names_all_groups_that_lag() -> None:
    """Grouped by rule and cluster; of very many subjects it names some and counts the rest."""
    of = picture(groups=50)
    found = look([LAG], {"main": of}, {}, [], TAKEN_MS)
    assert len(found.changes) == 49  # group-000 lags by 3
    ((receiver, message),) = found.messages
    assert receiver == "ops"
    assert message.title == "[FIRING] lag in main: 49 firing"
    assert len(message.lines) == LINES_MAX
    assert message.more == 49 - LINES_MAX
    assert message.lines[0].text == "group group-001: lag in records is 6 (lag in records above 5)"


def test_what_is_back_and_what_is_gone_is_resolved() -> None:
    """A group that caught up, and one that was deleted; in an old picture nobody knows."""
    of = picture(groups=3)
    first = look([LAG], {"main": of}, {}, [], TAKEN_MS)
    alerts = alerts_after(first, {})
    assert {key.subject for key in alerts} == {"group-001", "group-002"}
    caught_up = replace(of.groups["group-001"], lag=0)
    later = replace(of, groups={"group-001": caught_up}, taken_ms=TAKEN_MS + 100_000)
    old = look([LAG], {"main": later}, alerts, [], TAKEN_MS + 900_000)
    assert old.changes == ()
    found = look([LAG], {"main": later}, alerts, [], TAKEN_MS + 100_000)
    assert {each.event for each in found.changes} == {Event.RESOLVED}
    ((_, message),) = found.messages
    assert message.title == "[RESOLVED] lag in main: 2 resolved"
    assert any("group-002: is not there any more" in line.text for line in message.lines)


def test_a_rule_that_is_disabled_resolves_what_it_told() -> None:
    """So that nothing stays open at the receiver."""
    of = picture(groups=2)
    alerts = alerts_after(look([LAG], {"main": of}, {}, [], TAKEN_MS), {})
    found = look([replace(LAG, enabled=False)], {"main": of}, alerts, [], TAKEN_MS)
    assert [message.status for _, message in found.messages] == ["resolved"]
    assert alerts_after(found, alerts) == {}


def test_a_silence_holds_the_message_back_until_it_ends() -> None:
    """The alert fires and is seen; the message comes afterwards, if it still fires."""
    of = picture(groups=2)
    silence = Silence("1", "lag", "*", "group-*", TAKEN_MS + 1000, "vera")
    found = look([LAG], {"main": of}, {}, [silence], TAKEN_MS)
    assert len(found.changes) == 1
    assert found.messages == ()
    alerts = alerts_after(found, {})
    later = look([LAG], {"main": of}, alerts, [silence], TAKEN_MS + 1000)
    assert [message.status for _, message in later.messages] == ["firing"]


def test_every_kind_of_subject_can_be_watched() -> None:
    """Brokers, disks, topics without traffic, partitions, states of groups, pipelines, silence."""
    of = picture(groups=1)
    down = replace(of.brokers[1], up=False)
    full = replace(of.brokers[2].log_dirs[0], total_bytes=100, usable_bytes=4)
    brokers = (of.brokers[0], down, replace(of.brokers[2], log_dirs=(full,)))
    quiet = replace(of.topics["topic-0001"], records_in_rate=0.0)
    lost = PartitionPicture(0, None, 1, (0, 1), (0,))
    offline = replace(of.topics["topic-0002"], partitions=(lost,))
    empty = replace(of.groups["group-000"], state="Empty")
    stopped = replace(of.pipelines[0], state="failed")
    of = replace(
        of,
        brokers=brokers,
        topics={**of.topics, "topic-0001": quiet, "topic-0002": offline},
        groups={"group-000": empty},
        pipelines=(stopped,),
    )
    assert one_look(Rule("a", "broker.down"), of) == ["1"]
    assert one_look(Rule("a", Measure.BROKER_DISK_USED, threshold=0.9), of) == ["2"]
    quiet_rule = Rule("a", Measure.TOPIC_RECORDS_IN, Side.BELOW, threshold=0.01)
    assert one_look(quiet_rule, of) == ["topic-0001"]
    assert one_look(replace(quiet_rule, subjects="topic-0002"), of) == []
    assert one_look(Rule("a", Measure.CLUSTER_OFFLINE), of) == [""]
    assert one_look(Rule("a", Measure.CLUSTER_UNDER_REPLICATED), of) == [""]
    assert one_look(Rule("a", "group.state", states=("Empty", "Dead")), of) == ["group-000"]
    assert one_look(Rule("a", "group.state", states=("Dead",)), of) == []
    assert one_look(Rule("a", "pipeline.stopped"), of) == ["orders-to-lake"]
    assert one_look(Rule("a", Measure.GROUP_LAG_MS, threshold=10), of) == ["group-000"]
    assert one_look(Rule("a", Measure.GROUP_LAG, threshold=2, topics="topic-*"), of) == [
        "group-000"
    ]
    assert one_look(Rule("a", Measure.CLUSTER_BYTES_IN, threshold=1e6), of) == [""]
    silent = Rule("a", "cluster.silent", threshold=30)
    assert one_look(silent, of) == []
    assert one_look(silent, of, TAKEN_MS + 31_000) == [""]
    assert one_look(silent, ClusterPicture("main"), TAKEN_MS) == []


@pytest.mark.parametrize("watch", KINDS)
def test_every_kind_has_words(watch: str) -> None:
    """No kind of rule is shown as its technical name."""
    states = ("Dead",) if watch == "group.state" else ()
    words = condition_words(check_rule(Rule("a", watch, states=states)))
    assert watch not in words
    assert words.endswith(" for 60 s")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"name": "<b>"}, "name"),
        ({"watch": "group.mood"}, "watch: one of .*group.lag"),
        ({"threshold": float("nan")}, "threshold"),
        ({"for_s": -1}, "for_s: 0 to 604800 seconds"),
        ({"repeat_s": 5}, "repeat_s: 0 .once. or at least 60"),
        ({"clear": 6.0}, "clear: not above the threshold, 5"),
        ({"side": Side.BELOW, "clear": 4.0}, "clear: not below the threshold"),
        ({"subjects": ""}, "subjects: a pattern"),
        ({"watch": "broker.down", "topics": "a*"}, "topics: only with group.lag"),
        ({"states": ("Dead",)}, "states: needed by group.state"),
        ({"watch": "group.state"}, "states: needed by group.state"),
        ({"receivers": ("nobody",)}, "there is no receiver 'nobody'"),
        ({"note": "x" * 2000}, "note: at most 1000"),
    ],
)
def test_a_wrong_rule_is_refused(changed: dict[str, object], named: str) -> None:
    """The sentence names the field and what it may be."""
    with pytest.raises(RuleError, match=named):
        check_rule(replace(LAG, **{"receivers": (), **changed}), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("receiver", "named"),
    [
        (Receiver("a", ReceiverKind.SLACK, url="ftp://x/"), "url: http:// or https://"),
        (Receiver("a", ReceiverKind.JSON, url="http:///x"), "url"),
        (Receiver("a", ReceiverKind.JSON, url="http://x/\r\nX: y"), "url"),
        (Receiver("a", ReceiverKind.EMAIL, port=25, to=("a@b.c",), sender="a@b.c"), "host"),
        (Receiver("a", ReceiverKind.EMAIL, host="h", port=25, sender="a@b.c"), "to: 1 to 50"),
        (
            Receiver("a", ReceiverKind.EMAIL, host="h", port=25, sender="a@b.c\nBcc: x@y.z",
                     to=("a@b.c",)),
            "an address such as",
        ),
    ],
)  # fmt: skip
def test_a_wrong_receiver_is_refused(receiver: Receiver, named: str) -> None:
    """The sentence names the field; an address that may be secret is not repeated."""
    with pytest.raises(RuleError, match=named):
        check_receiver(receiver)


def test_rules_stand_in_the_file() -> None:
    """TOML tables become rules and receivers; secrets come from the environment too."""
    table = {
        "receivers": [{"name": "ops", "kind": "dingtalk", "url_env": "HOOK", "secret": "s"}],
        "rules": [
            {
                "name": "lag of web", "watch": "group.lag", "threshold": 1000, "clear": 100,
                "for_s": 60, "subjects": "web-*", "receivers": ["ops"], "severity": "critical",
            }
        ],
    }  # fmt: skip
    found = alerts_of(table, {"HOOK": "https://oapi.example/robot?access_token=t"})
    assert found.receivers[0].url.endswith("access_token=t")
    assert "access_token" not in found.receivers[0].described + repr(found.receivers[0])
    assert found.rules[0].severity == "critical"
    assert found.rules[0].threshold == 1000.0


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rule": []}, "alerts: unknown rule; rules or receivers"),
        ({"rules": {}}, r"alerts.rules: tables, \[\[alerts.rules\]\]"),
        ({"rules": [{"name": "a"}]}, "alerts.rules 1: name and watch must be given"),
        ({"rules": [{"name": "a", "watch": "broker.down", "for": 1}]}, "unknown field 'for'"),
        ({"rules": [{"name": "a", "watch": "broker.down", "for_s": "1"}]}, "for_s: a whole number"),
        ({"rules": [{"name": "a", "watch": "broker.down"}] * 2}, "rules 2: there are two of"),
        ({"receivers": [{"name": "a", "kind": "pager"}]}, "kind: one of email, slack"),
        (
            {"receivers": [{"name": "a", "kind": "slack", "url_env": "NONE"}]},
            "url_env: there is no variable 'NONE'",
        ),
    ],
)
def test_a_mistake_of_the_file_is_named(table: dict[str, object], sentence: str) -> None:
    """With its place, the rule and what to write."""
    with pytest.raises(RuleError, match=sentence):
        alerts_of(table, {})
