"""Which brokers the controller takes for dead, and when: the whole decision as tables."""

from __future__ import annotations

import pytest

from ottla.broker.broker_sessions import BrokerSessions, Dialled, Verdict, verdict

TIMEOUT_S = 9.0
EPOCH = 50


def sessions(*broker_ids: int) -> BrokerSessions:
    """The controller runs on a broker that is not among these."""
    made = BrokerSessions(TIMEOUT_S, 0.0)
    made.follow([(broker_id, EPOCH) for broker_id in broker_ids], 0.0)
    return made


def run(
    made: BrokerSessions, polls: dict[int, float], until_s: float, step_s: float = 1.0
) -> dict[int, float]:
    """When each broker is fenced, if each polls every second until the moment given."""
    fenced: dict[int, float] = {}
    now_s = 0.0
    while now_s < until_s:
        now_s += step_s
        for broker_id, last_s in polls.items():
            if now_s <= last_s:
                made.polled(broker_id, EPOCH, now_s)
        for broker_id, epoch in made.expired(now_s):
            assert epoch == EPOCH
            fenced.setdefault(broker_id, now_s)
            made.follow([(each, EPOCH) for each in made.sessions if each not in fenced], now_s)
    return fenced


@pytest.mark.parametrize(
    ("brokers", "last_polls", "fenced"),
    [
        pytest.param((2, 3), {2: 99, 3: 99}, {}, id="all alive"),
        pytest.param((2, 3), {2: 99, 3: 5}, {3: 15}, id="one of three is silent: its session"),
        pytest.param((2,), {2: 5}, {2: 15}, id="one of two is not more than half"),
        pytest.param(
            (2, 3), {2: 5, 3: 5}, {2: 24, 3: 24}, id="two of three: in doubt, as long again"
        ),
        pytest.param(
            (2, 3, 4, 5), {2: 5, 3: 5, 4: 99, 5: 99}, {2: 15, 3: 15}, id="two of five at once"
        ),
        pytest.param(
            (2, 3, 4, 5),
            {2: 5, 3: 5, 4: 5, 5: 99},
            {2: 24, 3: 24, 4: 24},
            id="three of five: in doubt",
        ),
        pytest.param((2, 3), {2: 5, 3: 12}, {2: 15, 3: 22}, id="one after the other: no doubt"),
    ],
)
def test_silence(
    brokers: tuple[int, ...], last_polls: dict[int, float], fenced: dict[int, float]
) -> None:
    """A session is what decides; more than half of the brokers at once make the controller wait."""
    assert run(sessions(*brokers), last_polls, 40) == fenced


@pytest.mark.parametrize(
    ("outcome", "dead"),
    [
        (Dialled.REFUSED, True),
        (Dialled.OTHER_INCARNATION, True),
        (Dialled.SAME_INCARNATION, False),
        (Dialled.SILENT, False),
    ],
)
def test_what_dialling_proves(outcome: Dialled, dead: bool) -> None:
    """Only a refused connection and another process prove a death."""
    made = sessions(2, 3)
    assert made.lost(2, EPOCH)
    assert made.proven_dead(2, EPOCH, outcome) is dead
    assert not made.proven_dead(3, EPOCH, outcome), "its connection was not lost"


def test_a_poll_after_the_loss_counts() -> None:
    """The broker has connected again: what dialling finds is about the past."""
    made = sessions(2)
    assert made.lost(2, EPOCH)
    made.polled(2, EPOCH, 1.0)
    assert not made.is_lost(2, EPOCH)
    assert not made.proven_dead(2, EPOCH, Dialled.REFUSED)


def test_other_epochs_count_for_nothing() -> None:
    """A process that was replaced can neither prolong the session of the next nor end it."""
    made = sessions(2)
    made.polled(2, EPOCH - 1, 8.0)
    assert not made.lost(2, EPOCH - 1)
    assert run(made, {}, 12) == {2: 10}
    made = sessions(2)
    made.follow([(2, EPOCH + 1)], 5.0)
    assert made.lost(2, EPOCH) is False
    assert made.sessions[2].seen_s == 5.0


def test_fenced_brokers_have_no_session() -> None:
    """Nothing is lost, dialled or fenced twice."""
    made = sessions(2, 3)
    made.follow([(3, EPOCH)], 1.0)
    assert not made.lost(2, EPOCH)
    assert run(made, {3: 99}, 40) == {}


@pytest.mark.parametrize("last_poll_s", [0.5, 1.0, 2.3, 4.4])
def test_an_end_is_noticed_when_it_comes(last_poll_s: float) -> None:
    """Sessions are looked at when the next of them ends, or is in doubt no longer."""
    for silent, after_s in (((2,), TIMEOUT_S), ((2, 3), 2 * TIMEOUT_S)):
        made = sessions(2, 3)
        now_s = 0.0
        while not (found := made.expired(now_s)):
            due_s = now_s + made.check_s
            for broker_id in (2, 3):
                if broker_id not in silent:
                    made.polled(broker_id, EPOCH, due_s)
                elif now_s <= last_poll_s < due_s:
                    made.polled(broker_id, EPOCH, last_poll_s)
            now_s = due_s
        assert [broker_id for broker_id, _ in found] == list(silent)
        assert now_s == pytest.approx(last_poll_s + after_s, abs=0.01)


def test_a_controller_that_was_stopped_begins_anew() -> None:
    """Its own pause is not the silence of others."""
    made = sessions(2)
    assert made.expired(1.0) == []
    assert made.expired(61.0) == []
    assert run(made, {}, 0) == {}
    for now_s in range(62, 71):
        assert made.expired(float(now_s)) == []
    assert made.expired(71.0) == [(2, EPOCH)]


@pytest.mark.parametrize(
    ("outcome", "fenced", "expected"),
    [
        (Dialled.REFUSED, False, Verdict.REPLACES),
        (Dialled.REFUSED, True, Verdict.REPLACES),
        (Dialled.OTHER_INCARNATION, False, Verdict.REPLACES),
        (Dialled.SAME_INCARNATION, False, Verdict.DUPLICATE),
        (Dialled.SAME_INCARNATION, True, Verdict.DUPLICATE),
        (Dialled.SILENT, False, Verdict.WAITS),
        (Dialled.SILENT, True, Verdict.REPLACES),
    ],
)
def test_a_second_process_of_an_id(outcome: Dialled, fenced: bool, expected: Verdict) -> None:
    """Refused: it replaces the first; answered: it is a duplicate; silence: the session decides."""
    assert verdict(outcome, fenced=fenced) is expected
