"""The application as a whole: where addresses lead, and what is said when something is wrong."""

from __future__ import annotations

from dataclasses import replace

from ottla.console.picture import ClusterPicture

from .pictures import browser, picture


def test_the_start_leads_to_the_first_cluster() -> None:
    """/ and the notes' /ke lead to the overview of the first cluster."""
    pages = browser(picture())
    for start in ("/", "/ke", "/ke/account/signin"):
        answer = pages.get(start)
        assert answer.status_code == 200
        assert answer.url.path == "/c/main/"
        assert "<h1>Overview</h1>" in answer.text


def test_unknown_pages_and_clusters_are_answered_by_a_page() -> None:
    """What does not exist is a 404 with a page that leads back; JSON where JSON is asked for."""
    pages = browser(picture())
    for address in ("/nothing", "/c/other/", "/c/main/nothing"):
        answer = pages.get(address)
        assert answer.status_code == 404
        assert 'class="error-page"' in answer.text
    answer = pages.get("/nothing", headers={"Accept": "application/json"})
    assert answer.json()["error"] == {
        "code": 404,
        "message": "There is no such page.",
        "hint": "",
    }


def test_a_cluster_that_never_answered_has_a_page() -> None:
    """Nothing is known of it: the page says so instead of failing."""
    answer = browser(ClusterPicture("main")).get("/c/main/")
    assert answer.status_code == 200
    assert "has not answered yet" in answer.text


def test_an_old_picture_says_how_old_it_is() -> None:
    """A cluster that is down shows what was known and since when it is silent."""
    answer = browser(picture()).get("/c/main/")
    assert "The cluster has not answered for" in answer.text
    assert "topic-0004" in answer.text
    assert "its log directories are not known" in answer.text


def test_a_failure_of_ours_is_a_page_without_a_traceback() -> None:
    """A bug is answered by a page that says so; its text stays in the log."""
    broken = replace(picture(), topics=None)  # type: ignore[arg-type]
    answer = browser(broken).get("/c/main/")
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert "The console failed" in answer.text
