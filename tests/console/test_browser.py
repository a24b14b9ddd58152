"""People walk through the console in a real browser, over a live Ottla and a live Apache Kafka.

One console process, one browser and one admin per cluster, shared by all tests; each test has
topics of its own. What the browser complains of (an error of a script, something that the
Content-Security-Policy refused) fails the test in which it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    AcknowledgeType,
    ConfigResource,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from ottla.client.admin import Admin
from ottla.structs import OffsetAndMetadata
from tests.live import Server
from tests.waiting import eventually

from .chromium import chromium
from .pictures import HOSTILE
from .receivers import HttpReceiver
from .walk import PASSWORD, PATIENCE_MS, PHONE, Person, person, wider_than_its_window
from .whole import ConsoleProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OTTLA = pytest.param("ottla", marks=pytest.mark.xdist_group("console_browser"))
QUICK_GROUPS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
}
APACHE = pytest.param("apache", marks=[pytest.mark.apache, pytest.mark.xdist_group("apache_kafka")])


def expect(what: Any) -> Any:
    from playwright.sync_api import expect as expect_

    expect_.set_options(timeout=PATIENCE_MS)
    return expect_(what)


@dataclass
class Walk:
    """A cluster, the console over it, and its admin in the browser."""

    bootstrap: str
    console: ConsoleProcess
    browser: Browser
    admin: Person

    @property
    def page(self) -> Page:
        return self.admin.page

    def go(self, path: str) -> Page:
        return self.admin.go(f"/c/main{path}")

    def topic(self, name: str, *values: str, partitions: int = 1) -> str:
        """A topic with these records, that the console shows already."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for at, value in enumerate(values):
                producer.send(name, value.encode(), partition=at % partitions)
            producer.flush()
        self.until(f"/topics?q={name}", name)
        return name

    def commit(self, group: str, topic: str, offset: int) -> None:
        with Consumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False
        ) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.commit({partition: OffsetAndMetadata(offset, "")})

    def until(self, path: str, text: str) -> None:
        """Look at the page again and again until it has the text."""
        while True:
            page = self.go(path)
            if text in page.inner_text("main"):
                return


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", params=[OTTLA, APACHE])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> Iterator[Walk]:
    directory = tmp_path_factory.mktemp("walk")
    if request.param == "apache":
        yield from walk_over(request.getfixturevalue("apache_kafka").bootstrap, directory, browser)
        return
    with Server(directory / "data", settings=QUICK_GROUPS) as server:
        yield from walk_over(server.bootstrap, directory, browser)


def walk_over(bootstrap: str, directory: Path, browser: Browser) -> Iterator[Walk]:
    options = ("--bootstrap-server", bootstrap, "--interval", "1")
    with ConsoleProcess(directory, *options) as console:
        admin = Person(browser, console.address)
        try:
            admin.first_sign_in("admin", console.password)
            yield Walk(bootstrap, console, browser, admin)
        finally:
            admin.close()


@pytest.fixture
def walk(shared: Walk) -> Iterator[Walk]:
    """The shared one; fails the test in which the browser complained of something."""
    shared.admin.complaints.clear()
    yield shared
    assert shared.admin.complaints == []


def test_people_sign_in_and_out(walk: Walk) -> None:
    """A page asks for a login first and leads back; a wrong password is refused; out means out."""
    with person(walk.browser, walk.console.address) as somebody:
        page = somebody.go("/c/main/topics")
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        somebody.go("/c/main/topics")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_topic_is_made_shown_and_deleted(walk: Walk) -> None:
    """Create by a form and its preview; the typed name alone lets the button delete it."""
    page = walk.go("/topics")
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("made-by-hand")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Other configs").fill("retention.ms=86400000")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="What will happen")).to_be_visible()
    page.locator("main form button.main").click()
    expect(page.locator(".note.good")).to_be_visible()
    walk.until("/topics?q=made-by-hand", "made-by-hand")
    page.get_by_role("link", name="made-by-hand").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Configs").click()
    expect(page.locator("tr", has_text="retention.ms").first).to_contain_text("86400000")
    page.get_by_role("link", name="Delete").click()
    button = page.locator("main form button.danger")
    expect(button).to_be_disabled()
    page.get_by_label("To confirm, type").fill("made-by-hand")
    button.click()
    expect(page.locator(".note.good")).to_be_visible()
    walk.until("/topics?q=made-by-hand", "No topic is like this")


def test_records_are_produced_found_followed_and_taken_away(walk: Walk) -> None:
    """Produced by hand, browsed with headers, found by a condition, followed live, downloaded."""
    topic = walk.topic("by-hand")
    page = walk.go(f"/topics/{topic}/messages")
    page.get_by_text("Produce a record").click()
    form = page.locator("#produce")
    form.get_by_label("Key", exact=True).fill("k-1")
    form.get_by_label("Value", exact=True).fill('{"amount": 7}')
    form.get_by_label("Headers").fill("trace: abc")
    form.get_by_role("button", name="Produce").click()
    expect(page.locator(".data-said")).to_contain_text("1 record was produced at partition 0")
    lines = [{"key": f"k-{each}", "value": json.dumps({"amount": each})} for each in range(20)]
    many = page.locator("#produce-lines")
    many.locator("textarea").fill("\n".join(map(json.dumps, lines)))
    many.get_by_role("button").click()
    expect(page.locator(".data-said")).to_contain_text("20 records were produced")

    browse = page.locator("#browse")
    browse.get_by_role("button", name="Show").click()
    expect(page.locator(".data-status")).to_have_text("21 records.")
    page.get_by_role("button", name="Record 0:0").click()
    expect(page.locator(".data-details")).to_contain_text("trace")

    browse.get_by_label("Only where").fill("amount > 17")
    browse.get_by_role("button", name="Show").click()
    expect(page.locator(".data-status")).to_have_text("2 records.")
    expect(page.locator("td.data-key")).to_have_text(["k-19", "k-18"])
    page.get_by_role("button", name="Select all shown").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    saved = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert sorted(each["key"] for each in saved) == ["k-18", "k-19"]

    browse.get_by_label("Only where").fill("amount = 1000")
    page.get_by_role("button", name="Live").click()
    expect(page.locator(".data-status")).to_have_text("Waiting for records …")
    with Producer(bootstrap_servers=walk.bootstrap) as producer:
        while page.locator("td.data-key").count() == 0:  # the watch may begin after the first
            producer.send(topic, b'{"amount": 1}')
            producer.send(topic, b'{"amount": 1000}', key=b"live")
            producer.flush()
            page.wait_for_timeout(300)
    expect(page.locator("td.data-key").first).to_have_text("live")
    assert set(page.locator("td.data-key").all_inner_texts()) == {"live"}
    page.get_by_role("button", name="Live").click()
    expect(page.locator(".data-status")).to_have_text("Stopped.")


def test_sql_gives_a_table_and_a_chart(walk: Walk) -> None:
    """One SELECT over a topic: rows and a drawn chart; what is no SELECT is refused in words."""
    topic = walk.topic(
        "asked", *(json.dumps({"n": each, "even": each % 2 == 0}) for each in range(50))
    )
    page = walk.go("/sql")
    statement = page.get_by_label("One SELECT")
    statement.fill(f"SELECT even, count(*) AS counted FROM {topic} GROUP BY even ORDER BY even")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result tbody td")).to_have_text(["false", "25", "true", "25"])
    expect(page.locator(".data-status")).to_contain_text("50 records read")
    expect(page.locator(".data-plot svg")).to_be_visible()
    statement.fill("SELECT * FROM read_text('/etc/passwd')")
    statement.press("Control+Enter")
    expect(page.locator(".data-status.bad")).not_to_be_empty()
    expect(page.locator("#result tbody td")).to_have_count(0)


def test_a_group_is_reset(walk: Walk) -> None:
    """Its lag is shown; the preview says what changes; the offsets are the chosen ones then."""
    topic = walk.topic("read-by-a-group", *map(str, range(10)))
    walk.commit("readers", topic, 4)
    walk.until("/groups?q=readers", "readers")
    page = walk.page
    page.get_by_role("link", name="readers").click()
    expect(page.locator("td[data-live=committed]")).to_have_text("4")
    expect(page.locator("td[data-live=lag]")).to_have_text("6")
    page.get_by_role("link", name="Reset").click()
    page.get_by_label("so many records on").check()
    page.get_by_label("Records", exact=True).fill("-3")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("tbody")).to_contain_text("4")
    expect(page.locator("tbody")).to_contain_text("1")
    confirm = page.get_by_label("To confirm, type")
    if confirm.count():
        confirm.fill("readers")
    page.locator("main form button.main").click()
    expect(page.locator(".note.good")).to_be_visible()
    with Admin(bootstrap_servers=walk.bootstrap) as admin:
        offsets = admin.list_group_offsets("readers")["readers"]
        assert offsets[TopicPartition(topic, 0)].offset == 1
    expect(page.locator("td[data-live=lag]")).to_have_text("9")


def with_group(walk: Walk, name: str, values: int) -> str:
    """A topic with records, and a share group that begins at its first one."""
    topic = walk.topic(name, *map(str, range(values)))
    with Admin(bootstrap_servers=walk.bootstrap) as admin:
        config = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource("group", f"{name}-group", config)])
    return topic


def test_a_share_group_is_shown_and_reset(walk: Walk) -> None:
    """Two members share a partition; what is done counts, also out of order; with nobody in it any
    more it is set back to the first record, and deleted."""
    topic = with_group(walk, "shared-jobs", 10)
    group = f"{topic}-group"
    options: dict[str, Any] = {
        "bootstrap_servers": walk.bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
    }
    with ShareConsumer(topic, **options) as one, ShareConsumer(topic, **options) as two:
        found: dict[int, Any] = {}

        def all_polled() -> bool:
            for each in (one, two):
                found.update({at.offset: (each, at) for at in each.poll_more(100)})
            return len(found) == 10

        eventually(all_polled)
        for offset, (reader, record) in found.items():
            done = offset in (0, 1, 3)
            reader.acknowledge(record, AcknowledgeType.ACCEPT if done else AcknowledgeType.RELEASE)
        for each in (one, two):
            each.commit_sync()
        walk.until("/groups?q=shared-jobs", group)
        walk.until(f"/groups/{group}", "2 members")
        page = walk.page
        expect(page.locator(".page-head .facts")).to_contain_text("share group")
        expect(page.locator("td[data-live=lag]")).to_have_text("7")
        expect(page.locator("td[data-live=committed]")).to_have_text("2")
        expect(page.get_by_role("columnheader", name="Begins at")).to_be_visible()
        expect(page.locator("[data-live=members]").first).to_have_text("2")
        page = walk.go(f"/groups/{group}?tab=members")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.locator("tbody tr").first).to_contain_text(f"{topic}: 0")
    walk.until(f"/groups/{group}?tab=members", "no member now")
    page = walk.page
    page.get_by_role("link", name="Reset").click()
    page.get_by_label("the first record that is there").check()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("it may come again")
    expect(page.locator("tbody tr").first).to_contain_text(f"{topic}-0")
    confirm = page.get_by_label("To confirm, type")
    if confirm.count():
        confirm.fill(group)
    page.locator("main form button.main").click()
    expect(page.locator(".note.good")).to_be_visible()
    expect(page.locator("td[data-live=lag]")).to_have_text("10")
    with Admin(bootstrap_servers=walk.bootstrap) as admin:
        starts = admin.list_share_group_offsets(group)[group]
    assert {each and each.start_offset for each in starts.values()} == {0}
    page.get_by_role("link", name="Delete").click()
    page.get_by_label("To confirm, type").fill(group)
    page.locator("main form button.danger").click()
    expect(page.locator(".note.good")).to_be_visible()


def test_a_group_of_the_new_protocol_is_shown(walk: Walk) -> None:
    """Its kind, assignor, the member with its partitions, and the lag (KIP-848)."""
    topic = walk.topic("new-protocol", *map(str, range(10)), partitions=2)
    with Consumer(
        topic, bootstrap_servers=walk.bootstrap, group_id="new-readers", group_protocol="consumer",
        auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        eventually(lambda: consumer.poll(timeout_ms=200) or consumer.assignment())
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "")})
        walk.until("/groups/new-readers?tab=members", f"{topic}: 0, 1")
        walk.until("/groups/new-readers", f"{topic}-0")
        page = walk.page
        expect(page.locator(".page-head .facts")).to_contain_text("consumer group · uniform")
        rows = page.locator("tbody tr")
        expect(rows.nth(0).locator("td[data-live=lag]")).to_have_text("2")
        expect(page.locator("[data-live=state]").first).to_have_text("Stable")


def test_an_alert_fires_and_resolves(walk: Walk) -> None:
    """A rule made on the page calls a real receiver when a group falls behind, and when not."""
    topic = walk.topic("watched", *map(str, range(10)))
    with HttpReceiver() as receiver:
        page = walk.admin.go("/alerts/receivers")
        page.get_by_label("Name").fill("hook")
        page.get_by_label("Kind").select_option("json")
        page.get_by_label("Address of the webhook").fill(receiver.url)
        page.get_by_role("button", name="Save").click()
        expect(page.locator("main")).to_contain_text("hook")
        assert "access_token=" not in page.content()  # the secret of its address
        page.get_by_role("button", name="Test").click()
        assert receiver.next().body["status"] == "test"
        page = walk.admin.go("/alerts/rule")
        page.get_by_label("Name").fill("watched is behind")
        page.get_by_label("Of", exact=True).select_option("group.lag")
        page.get_by_label("Threshold").fill("5")
        page.get_by_label("Seconds that it must hold").fill("0")
        page.get_by_label("Topics, groups, brokers").fill("watchers")
        page.get_by_label("hook").check()
        page.get_by_role("button", name="Save").click()
        expect(page.locator("main")).to_contain_text("watched is behind")
        walk.commit("watchers", topic, 1)
        fired = receiver.next().body
        assert (fired["status"], fired["rule"]) == ("firing", "watched is behind")
        page = walk.admin.go("/alerts")
        expect(page.locator("main")).to_contain_text("firing")
        expect(walk.go("/").locator("#lists .badge.warn")).to_have_text("warning")
        expect(walk.page.locator("#lists li")).to_contain_text("group watchers")
        walk.commit("watchers", topic, 10)
        assert receiver.next().body["status"] == "resolved"
        page = walk.admin.go("/alerts/history")
        expect(page.locator("tbody tr").first).to_contain_text("watchers")
        expect(page.locator("tbody tr").first).not_to_contain_text("firing")
        page = walk.admin.go("/alerts/deliveries")
        expect(page.locator("tbody .badge.good")).to_have_count(3)


def test_a_viewer_of_some_topics_is_refused_the_rest(walk: Walk) -> None:
    """Buttons are absent, addresses are refused, and SQL does not know what may not be read."""
    mine = walk.topic("open-orders", "1")
    secret = walk.topic("salaries", "1000000")
    page = walk.admin.go("/users")
    new = page.locator("section", has_text="A new user")
    new.get_by_label("Name").fill("vera")
    new.get_by_label("for topics").first.fill("open-*")
    new.get_by_role("button", name="Add the user").click()
    one_time = page.locator("#one-time-password").inner_text()
    with person(walk.browser, walk.console.address) as vera:
        vera.first_sign_in("vera", one_time, "vera has a long phrase")
        page = vera.go("/c/main/topics")
        expect(page.get_by_role("link", name=mine)).to_be_visible()
        expect(page.get_by_role("link", name=secret)).to_have_count(0)
        expect(page.get_by_role("link", name="Create topic")).to_have_count(0)
        expect(page.get_by_role("link", name="Users")).to_have_count(0)
        for refused in (f"/c/main/topics/{secret}", f"/c/main/topics/{secret}/messages", "/users"):
            answer = page.goto(refused)
            assert answer is not None
            assert answer.status in (403, 404), refused
            assert "1000000" not in page.content()
        page = vera.go("/c/main/sql")
        page.get_by_label("One SELECT").fill(f"SELECT * FROM {secret}")
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".data-status.bad")).not_to_be_empty()
        page.get_by_label("One SELECT").fill(f'SELECT value FROM "{mine}"')
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#result tbody td")).to_have_text(["1"])
        expect(vera.go(f"/c/main/topics/{mine}/messages").locator("#produce")).to_have_count(0)
    page = walk.admin.go("/audit?search=vera")
    expect(page.locator("tbody")).to_contain_text("vera")


def test_dark_light_and_narrow(walk: Walk) -> None:
    """The system's choice holds until the button changes it; a phone shows all of a page."""
    topic = walk.topic("seen-on-a-phone", '{"a": 1}')
    with person(walk.browser, walk.console.address, PHONE) as phone:
        phone.sign_in("admin", PASSWORD)
        page = phone.page
        page.get_by_role("button", name="Sign out").wait_for()
        page.wait_for_load_state("load")  # the button's script is a module, which comes last
        brightness = "() => getComputedStyle(document.body).backgroundColor"
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(brightness)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(brightness)
        assert darkness(dark) < 80 < 200 < darkness(light)
        page.get_by_role("button", name="Light or dark").click()
        page.wait_for_function(f"dark => ({brightness})() === dark", arg=dark)
        for path in ("", "topics", f"topics/{topic}", f"topics/{topic}/messages", "groups", "sql"):
            page = phone.go(f"/c/main/{path}")
            page.wait_for_load_state("load")
            assert page.evaluate(brightness) == dark  # the choice is kept
            assert wider_than_its_window(page) == [], path


def darkness(color: str) -> int:
    return sum(map(int, re.findall(r"\d+", color)[:3])) // 3


def test_content_is_never_markup(walk: Walk) -> None:
    """Keys, values, headers, group names and searches full of markup are shown as they are."""
    topic = walk.topic("hostile")
    hostile = HOSTILE.encode()
    with Producer(bootstrap_servers=walk.bootstrap) as producer:
        producer.send(topic, hostile, key=hostile, headers=[(HOSTILE, hostile)]).get()
        producer.send(topic, json.dumps({HOSTILE: HOSTILE}).encode(), key=hostile).get()
    walk.commit(HOSTILE, topic, 1)
    walk.until("/groups?q=onerror", "onerror")
    page = walk.page
    page.get_by_role("link", name="onerror").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)")
    assert_no_markup(page)
    page = walk.go(f"/topics/{topic}/messages")
    expect(page.locator(".data-status")).to_have_text("2 records.")
    for each in (0, 1):
        page.get_by_role("button", name=f"Record 0:{each}").click()
    expect(page.locator(".data-details").nth(1)).to_contain_text("<img src=x")
    assert_no_markup(page)
    page = walk.go("/sql")
    page.get_by_label("One SELECT").fill(f"SELECT * FROM {topic}")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".data-status")).to_contain_text("2 rows")
    expect(page.locator("#result")).to_contain_text("<script>alert(1)")
    assert_no_markup(page)
    for path in ("/c/main/topics?q=", "/c/main/groups?q=", "/audit?search="):
        page = walk.admin.page
        page.goto(path + HOSTILE)
        assert_no_markup(page)


def assert_no_markup(page: Page) -> None:
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("script:not([src])").count() == 0
    assert "49" not in page.title()  # {{7*7}} of a template
