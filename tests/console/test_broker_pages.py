"""Brokers: the list, one broker with requests, log dirs, partitions and configs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.console.picture import LogDirPicture, RequestPicture

from .pictures import browser, hostile_picture, picture
from .recording import RecordingAdmin


def configs(resources: list[Any], **options: Any) -> dict[str, Any]:
    [one] = resources
    line = {
        "value": "8",
        "read_only": False,
        "config_source": "DYNAMIC_BROKER_CONFIG",
        "is_sensitive": False,
        "synonyms": [],
        "config_type": "INT",
    }
    return {"broker": {one.name: {"num.io.threads": line, "node.id": {**line, "read_only": True}}}}


def test_the_list_has_each_broker() -> None:
    """Addresses, state, what they lead; one that is down stands out."""
    shown = picture()
    down = replace(shown.brokers[1], up=False)
    text = browser(replace(shown, brokers=(shown.brokers[0], down))).get("/c/main/brokers").text
    assert "127.0.0.1:9093" in text
    assert '<span class="badge bad">down</span>' in text
    assert "controller" in text


def test_a_broker_has_its_request_times_sorted() -> None:
    """By rate at first, by any column on demand."""
    shown = picture()
    requests = (RequestPicture("Fetch", 5, 9.5, None), RequestPicture("Produce", 50, 1.5, 9.0))
    pages = browser(replace(shown, brokers=(replace(shown.brokers[0], requests=requests),)))
    text = pages.get("/c/main/brokers/0").text
    assert text.index("<td>Produce") < text.index("<td>Fetch")
    text = pages.get("/c/main/brokers/0?sort=mean").text
    assert text.index("<td>Fetch") < text.index("<td>Produce")
    assert pages.get("/c/main/brokers/7").status_code == 404
    assert pages.get("/c/main/brokers/x").status_code == 404


def test_a_log_dir_shows_how_full_its_disk_is() -> None:
    """Used is what is not free; a directory that fails says so."""
    shown = picture()
    dirs = (LogDirPicture("/a", None, 1, 1, 100, 25), LogDirPicture("/b", "offline", 0, 0, None, 0))
    text = (
        browser(replace(shown, brokers=(replace(shown.brokers[0], log_dirs=dirs),)))
        .get("/c/main/brokers/0")
        .text
    )
    assert "75 % used" in text
    assert '<span class="badge bad">offline</span>' in text


def test_a_broker_without_metrics_says_where_they_come_from() -> None:
    """Apache's brokers have none by themselves: the page says what gives them."""
    shown = picture()
    bare = replace(shown.brokers[0], metrics_age_ms=None, requests=(), bytes_in_rate=None)
    text = browser(replace(shown, brokers=(bare,))).get("/c/main/brokers/0").text
    assert "jmx_prometheus_javaagent" in text
    assert "No request times are known" in text


def test_the_partitions_of_a_broker() -> None:
    """What it leads and follows, searched by topic."""
    pages = browser(picture())
    text = pages.get("/c/main/brokers/0?tab=partitions").text
    assert text.count("follower") == 10
    assert text.count(">leader<") == 5
    text = pages.get("/c/main/brokers/0?tab=partitions&q=0003").text
    assert "topic-0003" in text
    assert "topic-0001" not in text


def test_dynamic_configs_may_be_changed() -> None:
    """One that is fixed has no link; all brokers' have a page of their own."""
    admin = RecordingAdmin(describe_configs=configs)
    pages = browser(picture(), admin)
    for address, name in (("brokers/0", "0"), ("brokers", "")):
        text = pages.get(f"/c/main/{address}?tab=configs").text
        assert f"kind=broker&amp;name={name}&amp;config=num.io.threads" in text
        assert "config=node.id" not in text


@pytest.mark.parametrize("address", ["brokers", "brokers/0", "brokers/0?tab=partitions"])
def test_a_broker_is_never_markup(address: str) -> None:
    """Host, rack, version, paths and APIs are shown as text."""
    text = browser(hostile_picture()).get(f"/c/main/{address}").text
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<img" not in text
