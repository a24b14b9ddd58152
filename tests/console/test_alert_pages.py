"""The pages of alerts: rules, receivers, silences, history, deliveries, and who may use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.alerts.rules import Receiver, ReceiverKind, Rule
from ottla.console.alerts.service import AlertService
from ottla.console.app import create_app
from ottla.console.context import Console
from ottla.console.picture import ClusterPicture

from .pictures import (
    HOSTILE,
    TAKEN_MS,
    Browser,
    FakeCluster,
    FakeHistory,
    group,
    hostile_picture,
    picture,
    topic,
)
from .receivers import HttpReceiver

EVERYBODY = Principal("ada", (Grant(Role.ADMIN),))
VIEWER = Principal("vera", (Grant(Role.VIEWER),))
OPERATOR = Principal("olga", (Grant(Role.OPERATOR),))
SOME = Principal("tom", (Grant(Role.OPERATOR, "*", "topic-0000"),))
RULE = {
    "name": "behind", "watch": "group.lag", "side": "above", "threshold": "2", "clear": "1",
    "for_s": "0", "clear_for_s": "0", "repeat_s": "0", "clusters": "*", "subjects": "*",
    "topics": "", "states": "", "severity": "critical", "note": "look", "enabled": "1",
}  # fmt: skip


class Alerts:
    """A console with alerts over a cluster that never ran."""

    def __init__(self, data_dir: Path, of: ClusterPicture, *rules: Rule) -> None:
        self.cluster = FakeCluster(of)
        self.history = FakeHistory()
        clusters = {of.name: self.cluster}
        self.service = AlertService(clusters, data_dir, rules, clock=lambda: TAKEN_MS)
        self.console = Console(clusters, self.history, alerts=self.service)
        self.app = create_app(self.console, parts=("alerts", "api", "web"))

    def browser(self, principal: Principal = EVERYBODY) -> Browser:
        return Browser(self.app, self.cluster, self.history, principal)


@pytest.fixture
def alerts(tmp_path: Path) -> Iterator[Alerts]:
    made = Alerts(tmp_path, picture(topics=3, groups=3))
    yield made
    made.service.stop()


def text_of(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", answer.text))


def test_a_rule_by_hand_fires_and_is_seen(alerts: Alerts) -> None:
    """Made in the form, kept, evaluated: its alerts stand on the page and in the history."""
    browser = alerts.browser()
    assert "Nothing is wrong" in text_of(browser.get("/alerts"))
    answer = browser.submit("/alerts/rule", RULE)
    assert "The rule behind is kept." in text_of(answer)
    assert "lag in records above 2" in text_of(browser.get("/alerts/rules"))
    form = browser.get("/alerts/rule?name=behind").text
    assert 'value="behind" required' in form
    assert 'name="clear" aria-label="Value at which it resolves" value="1"' in form
    assert "Nothing is wrong." in text_of(browser.get("/c/main/"))
    alerts.service.look()
    assert "critical group group-000: lag in records is 3" in text_of(browser.get("/c/main/"))
    page = text_of(browser.get("/alerts"))
    assert "3 firing, 0 pending" in page
    assert "group group-002: lag in records is 9" in page
    assert "group group-002" in text_of(browser.get("/alerts/history"))
    browser.submit("/alerts/rules/delete", {"name": "behind"})
    alerts.service.look()
    assert "Nothing is wrong" in text_of(browser.get("/alerts"))
    assert [each.action for each in browser.access.entries] == ["put-rule", "delete-rule"]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", "<b>", "name: 1 to 80 letters"),
        ("threshold", "many", "threshold: a number"),
        ("threshold", "nan", "threshold: a number below"),
        ("for_s", "inf", "for_s: a number below"),
        ("clear", "5", "clear: not above the threshold"),
        ("watch", "nothing", "watch: one of"),
        ("receivers", "absent", "there is no receiver"),
        ("topics", "x" * 300, "topics: a pattern"),
    ],
)
def test_a_wrong_rule_is_refused(alerts: Alerts, field: str, value: str, sentence: str) -> None:
    """With the field; nothing is kept."""
    answer = alerts.browser().submit("/alerts/rule", {**RULE, field: value})
    assert answer.status_code == 422
    assert sentence in answer.text
    assert alerts.service.rules() == []


def test_a_receiver_is_tested_by_a_button_and_never_shown_whole(alerts: Alerts) -> None:
    """Its address is a secret: it reaches no page; a test and a rule's test reach the receiver."""
    browser = alerts.browser()
    with HttpReceiver() as http:
        fields = {"name": "ops", "kind": "slack", "url": http.url}
        assert "is kept" in text_of(browser.submit("/alerts/receivers", fields))
        page = browser.get("/alerts/receivers?name=ops").text
        assert "hidden" not in re.sub(r'type="hidden"|class="hidden"|aria-hidden', "", page)
        assert "127.0.0.1" in page
        # Left empty, the address stays as it was.
        browser.submit("/alerts/receivers", {"name": "ops", "kind": "slack", "url": ""})
        told = text_of(browser.submit("/alerts/receivers/test", {"name": "ops"}))
        assert "ops took the test message" in told
        assert "[TEST]" in http.next().body["text"]
        rule = {**RULE, "receivers": "ops", "step": "test"}
        assert "A test was sent. ops: taken" in browser.submit("/alerts/rule", rule).text
        assert "rule behind" in http.next().body["attachments"][0]["text"]
        http.answer = lambda request: (403, {}, b"no")
        told = text_of(browser.submit("/alerts/receivers/test", {"name": "ops"}))
        assert "did not take the test message: HTTP 403" in told
    page = text_of(browser.get("/alerts/deliveries"))
    assert "failed" in page
    assert "HTTP 403" in page


def test_a_silence_belongs_to_the_operators_of_its_clusters(alerts: Alerts) -> None:
    """Set and ended by an operator; a viewer and an operator of one topic may not."""
    alerts.service.put_rule(Rule("behind", "group.lag", threshold=2, for_s=0))
    alerts.service.look()
    fields = {"rules": "behind", "clusters": "main", "subjects": "group-00*", "minutes": "30"}
    for principal in (VIEWER, SOME):
        assert alerts.browser(principal).submit("/alerts/silence", fields).status_code == 403
    browser = alerts.browser(OPERATOR)
    assert text_of(browser.submit("/alerts/silence", fields)).count("silenced") > 3
    [silence] = alerts.service.silences()
    assert (silence.user, silence.until_ms - TAKEN_MS) == ("olga", 1_800_000)
    assert alerts.browser(VIEWER).submit("/alerts/silence/end", {"id": silence.id}).status_code == (
        403
    )
    assert "is ended" in text_of(browser.submit("/alerts/silence/end", {"id": silence.id}))
    for wrong in ({"minutes": "0"}, {"clusters": "absent"}):
        alerts.browser().submit("/alerts/silence", {**fields, **wrong})
    assert alerts.service.silences() == []


@pytest.mark.parametrize("principal", [VIEWER, OPERATOR])
def test_rules_and_receivers_are_the_admins(alerts: Alerts, principal: Principal) -> None:
    """Others see the rules, and change nothing; receivers and deliveries they do not see."""
    alerts.service.put_receiver(Receiver("ops", ReceiverKind.JSON, url="http://127.0.0.1:1/x"))
    browser = alerts.browser(principal)
    assert browser.get("/alerts/rules").status_code == 200
    for path in ("/alerts/rule", "/alerts/receivers", "/alerts/deliveries"):
        assert browser.get(path).status_code == 403
    for path in (
        "rule", "rules/delete", "receivers", "receivers/test", "receivers/delete",
        "deliveries/again",
    ):  # fmt: skip
        fields = {**RULE, "kind": "json", "url": "http://x/", "id": "1"}
        assert browser.submit(f"/alerts/{path}", fields).status_code == 403
    assert alerts.service.rules() == []
    unguarded = alerts.browser().post("/alerts/rule", data=RULE)
    assert unguarded.status_code == 403


def test_only_alerts_of_visible_topics_are_seen(tmp_path: Path) -> None:
    """Now and in the history: neither another topic's, nor the total of a group of several."""
    of = picture(topics=0, groups=0)
    of.topics.update({f"topic-000{each}": topic(f"topic-000{each}", seed=9) for each in range(2)})
    of.groups.update({"web": group("web", "topic-0000"), "secret": group("secret", "topic-0001")})
    rules = [
        Rule("size", "topic.size", threshold=0, for_s=0),
        Rule("lag", "group.lag", threshold=0, for_s=0),
        Rule("lag-by-topic", "group.lag", threshold=0, for_s=0, topics="*"),
    ]
    made = Alerts(tmp_path, of, *rules)
    made.service.look()
    every = text_of(made.browser(VIEWER).get("/alerts"))
    assert "topic topic-0001" in every
    assert "group secret" in every
    for path in ("/alerts", "/alerts/history"):
        page = text_of(made.browser(SOME).get(path))
        assert "topic topic-0000" in page
        assert "group web, topic topic-0000" in page
        assert "topic-0001" not in page
        assert "secret" not in page
    made.service.stop()


def test_hostile_names_are_text_everywhere(tmp_path: Path) -> None:
    """Topics, groups and brokers named by markup, in alerts, history and deliveries."""
    made = Alerts(
        tmp_path,
        hostile_picture(),
        Rule("size", "topic.size", threshold=0, for_s=0, note=HOSTILE, receivers=("gone",)),
        Rule("lag", "group.lag", threshold=0, for_s=0, receivers=("gone",)),
    )
    made.service.look()
    browser = made.browser()
    for path in ("", "/rules", "/history", "/deliveries", "/receivers", "/rule?name=size"):
        answer = browser.get(f"/alerts{path}")
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "onerror=alert" not in re.sub("&lt;img.*?&gt;", "", answer.text)
    assert "&lt;script&gt;" in browser.get("/alerts").text
    made.service.stop()


def test_rules_of_the_file_cannot_be_changed_here(tmp_path: Path) -> None:
    """They are shown as such, and the form says where they are changed."""
    made = Alerts(tmp_path, picture(), Rule("behind", "group.lag", threshold=1))
    browser = made.browser()
    assert "of the file" in text_of(browser.get("/alerts/rules"))
    answer = browser.submit("/alerts/rule", RULE)
    assert answer.status_code == 422
    assert "change it there" in answer.text
    answer = browser.submit("/alerts/rules/delete", {"name": "behind"})
    assert "stands in the console&#39;s file" in answer.text
    made.service.stop()


def test_the_api_steers_alerts(alerts: Alerts) -> None:
    """A receiver and a rule are put, the receiver tested, the alert fires, is listed, silenced and
    in the history; secrets are in no answer, and a viewer changes nothing."""
    browser, viewer = alerts.browser(), alerts.browser(VIEWER)

    def send(method: str, path: str, by: Browser = browser, **body: Any) -> Any:
        headers = {"X-CSRF-Token": by.access.anonymous_csrf(cast(Any, None))[0]}
        return by.request(method, f"/api/v1/alerts{path}", json=body, headers=headers)

    with HttpReceiver() as hook:
        receiver = {"kind": "json", "url": hook.url}
        assert send("PUT", "/receivers/hook", viewer, **receiver).status_code == 403
        made = send("PUT", "/receivers/hook", **receiver)
        assert made.status_code == 200, made.text
        assert send("POST", "/receivers/hook/test").json() == {"taken": True, "error": ""}
        assert hook.next()
    assert send("POST", "/receivers/hook/test").status_code == 502
    rule = {"watch": "group.lag", "threshold": 2, "for_s": 0, "receivers": ["hook"]}
    assert send("PUT", "/rules/behind", viewer, **rule).status_code == 403
    assert send("PUT", "/rules/behind", **rule).json()["threshold"] == 2
    for wrong in ({**rule, "colour": "red"}, {**rule, "threshold": "2"}, {"watch": "x"}):
        assert send("PUT", "/rules/wrong", **wrong).status_code == 422
    alerts.service.look()
    found = browser.get("/api/v1/alerts").json()["items"]
    assert {(each["subject"], each["phase"]) for each in found} >= {("group-002", "firing")}
    assert send("POST", "/silences", minutes="5").status_code == 422
    silence = send("POST", "/silences", subjects="group-*", minutes=5).json()["id"]
    assert all(each["silenced"] for each in browser.get("/api/v1/alerts").json()["items"])
    assert browser.get("/api/v1/alerts/silences").json()["total"] == 1
    assert send("DELETE", f"/silences/{silence}").status_code == 200
    assert browser.get("/api/v1/alerts/history").json()["items"][0]["rule"] == "behind"
    assert len(browser.get("/api/v1/alerts/deliveries").json()["items"]) >= 2
    everything = "".join(
        browser.get(f"/api/v1/alerts{each}").text
        for each in ("", "/rules", "/receivers", "/silences", "/history", "/deliveries")
    )
    assert "hidden" not in everything + made.text
    assert send("DELETE", "/receivers/hook").status_code == 422
    assert send("DELETE", "/rules/behind").status_code == 200
    alerts.service.look()
    assert send("DELETE", "/receivers/hook").status_code == 200
