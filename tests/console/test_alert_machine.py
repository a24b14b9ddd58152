"""The states of one alert: random values over time, compared with what they mean."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.console.alerts.machine import Alert, Event, Phase, step
from ottla.console.alerts.retrying import FINAL_ATTEMPTS_MAX, GIVE_UP_MS, next_attempt
from ottla.console.alerts.rules import Rule, Side

Look = tuple[int, float | None, bool]  # ms since the last look, value, silenced
RULES = st.builds(
    Rule,
    name=st.just("rule"),
    watch=st.just("group.lag"),
    side=st.sampled_from(Side),
    threshold=st.just(5.0),
    clear=st.sampled_from([None, 5.0]),
    for_s=st.sampled_from([0, 10, 30]),
    clear_for_s=st.sampled_from([0, 20]),
    repeat_s=st.sampled_from([0, 60]),
)
LOOKS = st.lists(
    st.tuples(
        st.integers(1, 20_000),
        st.one_of(st.none(), st.integers(0, 10).map(float)),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=60,
)


def hysteresis(rule: Rule) -> Rule:
    """The same with a threshold to clear that is two away."""
    if rule.clear is None:
        return rule
    by = -2.0 if rule.side is Side.ABOVE else 2.0
    return Rule(
        **{name: getattr(rule, name) for name in rule.__dataclass_fields__}
        | {"clear": rule.threshold + by}
    )


def firing_by_definition(rule: Rule, past: list[tuple[int, float | None]]) -> bool:
    """Whether an alert with this past fires, found by reading all of it."""
    firing, breach_began, clear_began = False, None, None
    for time_ms, value in past:
        if value is None:
            continue
        if firing:
            if rule.clears(value):
                clear_began = time_ms if clear_began is None else clear_began
                if time_ms - clear_began >= rule.clear_for_s * 1000:
                    firing, breach_began, clear_began = False, None, None
            else:
                clear_began = None
        elif rule.breaches(value):
            breach_began = time_ms if breach_began is None else breach_began
            firing = time_ms - breach_began >= rule.for_s * 1000
        else:
            breach_began = None
    return firing


@given(RULES.map(hysteresis), LOOKS)
@settings(max_examples=300, deadline=None)
def test_the_state_is_what_the_values_mean(rule: Rule, looks: list[Look]) -> None:
    """For any values and any times the alert fires exactly when a reading of the whole past says
    so; messages come in order, never in a silence (but for what was told), and repeats keep their
    distance."""
    alert: Alert | None = None
    time_ms, told_ms = 0, None
    past: list[tuple[int, float | None]] = []
    open_elsewhere = False
    for wait_ms, value, silenced in looks:
        time_ms += wait_ms
        past.append((time_ms, value))
        alert, event = step(rule, alert, value, time_ms, silenced)
        firing = alert is not None and alert.phase is Phase.FIRING
        assert firing == firing_by_definition(rule, past)
        if event is Event.FIRED:
            assert firing
            assert not open_elsewhere
            assert not silenced
            open_elsewhere, told_ms = True, time_ms
        elif event is Event.REPEATED:
            assert firing
            assert open_elsewhere
            assert not silenced
            assert told_ms is not None
            assert rule.repeat_s
            assert time_ms - told_ms >= rule.repeat_s * 1000
            told_ms = time_ms
        elif event is Event.RESOLVED:
            assert open_elsewhere
            assert not firing
            open_elsewhere = False
        if not firing:
            assert not open_elsewhere
        elif not silenced and alert is not None and alert.clear_since_ms is None:
            assert open_elsewhere


@given(st.integers(1, 1000), st.booleans(), st.integers(0, 3600))
def test_a_message_is_tried_until_it_is_given_up(attempts: int, final: bool, after_s: int) -> None:
    """The next attempt is later, no sooner than the receiver asks, and ends after a day, or after
    few attempts where the receiver says never."""
    now_ms = 1_000_000
    found = next_attempt(now_ms, attempts, now_ms, final=final, after_s=after_s)
    if final and attempts >= FINAL_ATTEMPTS_MAX:
        assert found is None
    else:
        assert found is not None
        assert found >= now_ms + max(5_000, after_s * 1000)
    assert next_attempt(0, 1, GIVE_UP_MS) is None
