"""The report's charts and page: valid, to scale, and with nothing to load from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts.demo import charts, report
from scripts.demo.story import Check, Sample, Story, rates, thinned

SVG = re.compile(r"<svg.*?</svg>", re.S)


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (9.5, [0, 2.5, 5, 7.5, 10]),
        (1900, [0, 500, 1000, 1500, 2000]),
        (2001, [0, 1000, 2000, 3000]),
    ],
)
def test_ticks_are_round_and_reach_the_top(high: float, ticks: list[float]) -> None:
    """An axis has a few round numbers, the last not below the highest value."""
    assert charts.nice_ticks(high) == ticks


def test_a_bar_is_as_long_as_its_value() -> None:
    """Half the value, half the length; the text and the name are beside it, escaped."""
    drawn = ElementTree.fromstring(
        charts.bars([("<home>", 200, "200"), ("shoes", 100, "100")], title="pages")
    )
    first, second = (float(bar.get("width", "0")) for bar in drawn.iter("rect"))
    assert first == 2 * second
    texts = [text.text for text in drawn.iter("text")]
    assert texts == ["<home>", "200", "shoes", "100"]


def test_a_line_goes_where_its_points_are() -> None:
    """The highest tick is at the top, zero at the bottom; first and last x at the edges."""
    drawn = SVG.findall(charts.lines([charts.Line("a", [(0, 0), (5, 50), (10, 100)])], title="t"))
    line = next(ElementTree.fromstring(drawn[0]).iter("polyline")).get("points")
    top, bottom = charts.TOP, charts.HEIGHT - charts.BOTTOM
    left, right = charts.LEFT, charts.WIDTH - charts.RIGHT
    middle = ((left + right) / 2, (top + bottom) / 2)
    assert line is not None
    places = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert places == [(left, bottom), middle, (right, top)]


def test_nothing_to_draw_is_no_error() -> None:
    """Empty series and rows make an empty chart."""
    assert ElementTree.fromstring(charts.bars([], title="none")).tag == "svg"
    assert ElementTree.fromstring(charts.lines([], title="none")).tag == "svg"


def test_rates_are_differences_over_time() -> None:
    """Events per second come from the counts of two moments; a replay is never negative."""
    samples = [Sample(0, 0, 0), Sample(1, 100, 50), Sample(2, 300, 40)]
    assert rates(samples, over_s=1) == [(1, 100, 50), (2, 200, 0)]
    assert [sample.lag for sample in samples] == [0, 50, 260]
    assert thinned(samples, 1.5) == [samples[0], samples[2]]


def story(*, good: bool) -> Story:
    return Story(
        samples=[Sample(x / 2, 100 * x, 90 * x) for x in range(60)],
        happenings=[(12.0, "killed <it>")],
        killed_at_s=12.0,
        back_at_s=18.0,
        checks=[Check("all counted", "10", "10", True), Check("none twice", "0", "1", good)],
        pages=[("/", 10), ("/shoes", 5)],
        views={("09:00", "/"): 6, ("09:01", "/"): 4, ("09:01", "/shoes"): 5},
        funnel=[("visit", 10), ("order", 1)],
        figures=[("5,900", "events sent")],
        code=[("page_views.py", "a < b")],
        command="ottla pipeline run",
    )


@pytest.mark.parametrize("good", [True, False])
def test_the_page_tells_the_verdict(good: bool) -> None:
    """All checks good is said at the top; one that is not turns it round."""
    page = report.page(story(good=good))
    assert ("Every event was counted exactly once" in page) is good
    assert ("The counts are not what they should be" in page) is not good
    assert "killed &lt;it&gt;" in page
    assert "a &lt; b" in page


def test_the_page_needs_nothing_else() -> None:
    """No script, no link, no image, no font from anywhere; every chart is well-formed."""
    page = report.page(story(good=True))
    assert not re.search(r"<script|<link|<img|url\(|@import|https?://", page)
    found = SVG.findall(page)
    assert len(found) == 5
    for drawn in found:
        ElementTree.fromstring(drawn)
    assert "prefers-color-scheme: dark" in page
