"""Retention's decisions: a table of cases, and Kafka's own order of steps as a simple model."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.retention import SegmentFacts, breaches
from ottla.settings import LogConfig

NOW = 1_000_000

BOTH = frozenset({"compact", "delete"})
COMPACT = frozenset({"compact"})


def segments(*facts: tuple[int, int, int]) -> list[SegmentFacts]:
    """Segments from (base offset, bytes, largest timestamp)."""
    return [SegmentFacts(base, size, lambda ts=ts: ts) for base, size, ts in facts]


THREE = segments((0, 100, NOW - 900), (10, 100, NOW - 500), (20, 100, NOW - 100))
EMPTY_LAST = segments((0, 100, NOW - 900), (10, 100, NOW - 500), (20, 0, NOW - 900))
FUTURE_FIRST = segments((0, 100, NOW + 900), (10, 100, NOW - 900), (20, 100, NOW))


@pytest.mark.parametrize(
    ("given_segments", "config", "log_start", "high_watermark", "expected"),
    [
        pytest.param(THREE, {"retention_ms": 1000}, 0, 30, 0, id="all young"),
        pytest.param(THREE, {"retention_ms": 899}, 0, 30, 1, id="one old"),
        pytest.param(THREE, {"retention_ms": 900}, 0, 30, 0, id="exactly at the limit stays"),
        pytest.param(THREE, {"retention_ms": 0}, 0, 30, 3, id="all old, the last too"),
        pytest.param(THREE, {"retention_ms": -1}, 0, 30, 0, id="for ever"),
        pytest.param(THREE, {"retention_ms": 0}, 0, 29, 2, id="high watermark in the last"),
        pytest.param(THREE, {"retention_ms": 0}, 0, 10, 1, id="high watermark at a border"),
        pytest.param(THREE, {"retention_ms": 0}, 0, 0, 0, id="nothing committed"),
        pytest.param(EMPTY_LAST, {"retention_ms": 0}, 0, 20, 2, id="an empty last one stays"),
        pytest.param(FUTURE_FIRST, {"retention_ms": 10}, 0, 30, 0, id="the future shields"),
        pytest.param(
            FUTURE_FIRST, {"retention_ms": 10, "retention_bytes": 200}, 0, 30, 2,
            id="size takes the shield away",
        ),
        pytest.param(THREE, {"retention_ms": -1, "retention_bytes": 300}, 0, 30, 0, id="fits"),
        pytest.param(THREE, {"retention_ms": -1, "retention_bytes": 299}, 0, 30, 0,
                     id="a whole segment must be too much"),
        pytest.param(THREE, {"retention_ms": -1, "retention_bytes": 200}, 0, 30, 1, id="by size"),
        pytest.param(THREE, {"retention_ms": -1, "retention_bytes": 0}, 0, 30, 3, id="no bytes"),
        pytest.param(THREE, {"retention_ms": -1}, 10, 30, 1, id="below the log start"),
        pytest.param(THREE, {"retention_ms": -1}, 19, 30, 1, id="partly below the log start"),
        pytest.param(THREE, {"retention_ms": -1}, 30, 30, 2, id="log start at the end"),
        pytest.param(THREE, {"retention_ms": 0, "cleanup_policy": COMPACT}, 0, 30, 0,
                     id="compacted only"),
        pytest.param(THREE, {"retention_ms": 0, "cleanup_policy": COMPACT}, 10, 30, 1,
                     id="compacted only, below the log start"),
        pytest.param(THREE, {"retention_ms": 899, "cleanup_policy": BOTH}, 0, 30, 1,
                     id="compacted and deleted"),
        pytest.param([], {"retention_ms": 0}, 0, 0, 0, id="no segments"),
    ],
)  # fmt: skip
def test_which_segments_go(
    given_segments: list[SegmentFacts],
    config: dict[str, object],
    log_start: int,
    high_watermark: int,
    expected: int,
) -> None:
    """Each rule takes a run of the oldest segments, and never what it may not."""
    found = breaches(
        given_segments,
        LogConfig(**config),  # type: ignore[arg-type]
        now_ms=NOW,
        log_start_offset=log_start,
        end_offset=30 if given_segments is not EMPTY_LAST else 20,
        high_watermark=high_watermark,
    )
    assert (found.segments if found else 0) == expected


def test_the_reason_is_reported() -> None:
    """What is logged when segments go names the option that did it."""
    found = breaches(
        THREE, LogConfig(retention_ms=600), now_ms=NOW, log_start_offset=0,
        end_offset=30, high_watermark=30,
    )  # fmt: skip
    assert found is not None
    assert found.reason == "retention.ms=600"


def one_rule_after_the_other(
    facts: Sequence[SegmentFacts], config: LogConfig, log_start: int, end: int, high: int
) -> int:
    """Kafka's way: three passes, each deleting from the front before the next begins."""
    left = list(facts)

    def run(may_go: object) -> None:
        while left:
            bound = left[1].base_offset if len(left) > 1 else end
            empty_last = len(left) == 1 and left[0].size_bytes == 0
            if high < bound or empty_last or not may_go(left[0]):  # type: ignore[operator]
                return
            left.pop(0)

    run(lambda _: len(left) > 1 and left[1].base_offset <= log_start)
    if config.delete:
        total = sum(s.size_bytes for s in left)
        if config.retention_bytes >= 0 and total >= config.retention_bytes:
            run(lambda s: sum(x.size_bytes for x in left) - s.size_bytes >= config.retention_bytes)
        if config.retention_ms >= 0:
            run(lambda s: NOW - s.largest_timestamp() > config.retention_ms)
    return len(facts) - len(left)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300), st.integers(0, 1000)), max_size=6),
    st.integers(-1, 1000),
    st.integers(-1, 900),
    st.sampled_from([frozenset({"delete"}), COMPACT, BOTH, frozenset()]),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_all_rules_at_once_are_the_rules_one_by_one(
    shape: list[tuple[int, int, int]],
    retention_ms: int,
    retention_bytes: int,
    policy: frozenset[str],
    log_start: int,
    high_watermark: int,
) -> None:
    """The one decision removes exactly what Kafka's three passes remove."""
    facts, base = [], 0
    for records, size, age in shape:
        facts.append(SegmentFacts(base, size if records else 0, lambda age=age: NOW - age))
        base += records
    config = LogConfig(
        retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy
    )
    high_watermark = min(high_watermark, base)
    found = breaches(
        facts, config, now_ms=NOW, log_start_offset=min(log_start, high_watermark),
        end_offset=base, high_watermark=high_watermark,
    )  # fmt: skip
    assert (found.segments if found else 0) == one_rule_after_the_other(
        facts, config, min(log_start, high_watermark), base, high_watermark
    )
