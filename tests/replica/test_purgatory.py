"""Parked requests: woken by what they wait for and by time, cancelled without a trace."""

import heapq
import random
from collections.abc import Callable

import pytest

from ottla.replica.offset_waits import GONE_MAX
from ottla.replica.purgatory import EMPTY_TICKS_MAX, TICK_S, Purgatory
from ottla.seams.clock import ManualClock, ManualTimer


class Request:
    """Something to park; complete once `ready` is set."""

    def __init__(self) -> None:
        self.ready = False
        self.tries: list[bool] = []
        self.answered = False

    def attempt(self, expired: bool) -> bool:
        self.tries.append(expired)
        self.answered = self.answered or self.ready or expired
        return self.answered


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def purgatory(clock: ManualClock) -> Purgatory:
    return Purgatory(clock)


def test_waking_a_key_tries_what_waits_for_it(purgatory: Purgatory) -> None:
    """Only requests under the key are tried, and those that are not ready stay."""
    first, second, other = Request(), Request(), Request()
    first.ready = True
    purgatory.park(["a"], 1000, first.attempt)
    purgatory.park(["a", "b"], 1000, second.attempt)
    purgatory.park(["c"], 1000, other.attempt)
    purgatory.wake("a")
    assert (first.answered, second.tries, other.tries) == (True, [False], [])
    assert len(purgatory) == 2
    second.ready = True
    purgatory.wake("b")
    assert second.answered
    assert len(purgatory) == 1


def test_answered_requests_leave_nothing_behind(clock: ManualClock, purgatory: Purgatory) -> None:
    """However long they might have waited; those that still wait keep their times."""
    kept = Request()
    purgatory.park(["b"], 60_000, kept.attempt)
    for _ in range(3 * EMPTY_TICKS_MAX):
        clock.advance(TICK_S * 1000)
        purgatory.cancel(purgatory.park(["a"], 3_600_000, Request().attempt))
    assert len(purgatory) == 1
    assert len(purgatory._ticks) == len(purgatory._by_tick) <= EMPTY_TICKS_MAX + 3
    clock.advance(60_000)
    assert kept.tries == [True]


def test_time_ends_the_wait_with_a_last_attempt(clock: ManualClock, purgatory: Purgatory) -> None:
    """The last attempt comes once, at the deadline rounded up to a tick, marked as the last."""
    request = Request()
    purgatory.park(["a"], 100, request.attempt)
    clock.advance(99)
    assert request.tries == []
    clock.advance(1 + TICK_S * 1000)
    assert request.tries == [True]
    clock.advance(10_000)
    assert request.tries == [True]
    assert len(purgatory) == 0


def test_small_news_cost_no_attempt_until_enough_bytes_came(purgatory: Purgatory) -> None:
    """A request that misses 100 bytes is tried when 100 have come, not before."""
    request = Request()
    purgatory.park(["a"], 1000, request.attempt, missing_bytes=100)
    purgatory.wake("a", 60)
    assert request.tries == []
    purgatory.wake("a", 40)
    assert request.tries == [False]


def test_a_change_of_state_is_always_looked_at(purgatory: Purgatory) -> None:
    """News without a size (a lost leader, a deleted topic) is tried whatever is missing."""
    request = Request()
    purgatory.park(["a"], 1000, request.attempt, missing_bytes=1 << 30)
    purgatory.wake("a")
    assert request.tries == [False]


def test_wake_soon_gathers_a_turn_of_the_loop(clock: ManualClock, purgatory: Purgatory) -> None:
    """Many appends in one turn lead to one attempt, after the turn."""
    request = Request()
    purgatory.park(["a"], 1000, request.attempt, missing_bytes=30)
    for _ in range(4):
        purgatory.wake_soon("a", 10)
    assert request.tries == []
    clock.advance(0)
    assert request.tries == [False]
    purgatory.wake_soon("nobody waits for this", 10)
    clock.advance(0)
    assert request.tries == [False]


def test_cancelling_leaves_nothing_behind(clock: ManualClock, purgatory: Purgatory) -> None:
    """A cancelled request is not tried again, by waking or by time, and frees all it held."""
    request = Request()
    waiter = purgatory.park(["a", "b"], 100, request.attempt)
    purgatory.cancel(waiter)
    purgatory.cancel(waiter)
    purgatory.wake("a")
    clock.advance(1_000)
    assert request.tries == []
    assert len(purgatory) == 0
    assert purgatory._by_key == {}


def test_an_answer_that_causes_news_does_not_try_itself_again(purgatory: Purgatory) -> None:
    """Waking from inside an attempt (the next request of that client appends) is harmless."""
    tries = 0

    def attempt(expired: bool) -> bool:
        nonlocal tries
        tries += 1
        purgatory.wake("a")
        return tries == 2

    purgatory.park(["a"], 1000, attempt)
    purgatory.wake("a")
    assert (tries, len(purgatory)) == (1, 1)
    purgatory.wake("a")
    assert (tries, len(purgatory)) == (2, 0)


def test_no_time_to_wait_is_answered_at_once(purgatory: Purgatory) -> None:
    """A wait of 0 ms makes its last attempt where it stands."""
    request = Request()
    purgatory.park(["a"], 0, request.attempt)
    assert request.tries == [True]
    assert len(purgatory) == 0


def test_at_the_limit_a_request_is_answered_with_what_there_is(clock: ManualClock) -> None:
    """One more than may wait makes its last attempt at once; when one goes, another may wait."""
    purgatory = Purgatory(clock, parked_max=2)
    first, second, third, fourth = (Request() for _ in range(4))
    waiter = purgatory.park(["a"], 1000, first.attempt)
    purgatory.park(["a"], 1000, second.attempt)
    purgatory.park(["a"], 1000, third.attempt)
    assert third.tries == [True]
    purgatory.cancel(waiter)
    purgatory.park(["a"], 1000, fourth.attempt)
    assert fourth.tries == []


class CountingClock(ManualClock):
    """Counts the timers that are set."""

    timers_set = 0

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        self.timers_set += 1
        return super().call_later(delay_s, callback, *args)


def test_a_thousand_long_polls_share_timers() -> None:
    """A thousand waits of 30 s that began within a second need a timer per tick at most."""
    clock = CountingClock()
    purgatory = Purgatory(clock)
    requests = [Request() for _ in range(1_000)]
    for request in requests:
        purgatory.park([request], 30_000, request.attempt)
        clock.advance(1)
    assert clock.timers_set == 1
    clock.advance(31_000)
    assert all(request.tries == [True] for request in requests)
    assert clock.timers_set <= 1_000 / (TICK_S * 1000) + 2


def test_closing_makes_the_last_attempt_for_all(clock: ManualClock, purgatory: Purgatory) -> None:
    """When the broker stops nothing is left waiting."""
    requests = [Request() for _ in range(3)]
    for request in requests:
        purgatory.park(["a"], 1_000, request.attempt)
    purgatory.close()
    assert [request.tries for request in requests] == [[True]] * 3
    assert clock.next_due_s() is None


class TestTurns:
    """One move may concern thousands; the work of one turn of the loop is bounded."""

    @pytest.fixture
    def purgatory(self, clock: ManualClock) -> Purgatory:
        return Purgatory(clock, attempts_per_turn=10)

    def park(self, purgatory: Purgatory, count: int, order: list[int]) -> None:
        for number in range(count):
            purgatory.park(["a"], 1000, lambda expired, number=number: not order.append(number))

    def test_a_move_is_spread_over_turns_in_order(
        self, clock: ManualClock, purgatory: Purgatory
    ) -> None:
        """Ten a turn, first come first served, and each once."""
        order: list[int] = []
        self.park(purgatory, 35, order)
        purgatory.wake_soon("a", 1)
        seen = []
        while clock.next_due_s() == 0.0:
            run_one_timer(clock)
            seen.append(len(order))
        assert seen == [10, 20, 30, 35]
        assert order == list(range(35))
        assert len(purgatory) == 0

    def test_what_moves_in_between_comes_behind(
        self, clock: ManualClock, purgatory: Purgatory
    ) -> None:
        """And is not lost: neither a later key, nor the same one again."""
        order: list[int] = []
        self.park(purgatory, 15, order)
        late = Request()
        purgatory.park(["b"], 1000, late.attempt)
        purgatory.wake("a")
        assert len(order) == 10
        late.ready = True
        purgatory.wake("b")
        purgatory.wake("a")
        clock.advance(0)
        assert order == list(range(15))
        assert late.tries == [False]

    def test_acknowledgements_go_before_readers(
        self, clock: ManualClock, purgatory: Purgatory
    ) -> None:
        """A producer that waits behind a thousand readers is answered in the first turn."""
        order: list[int] = []
        self.park(purgatory, 30, order)
        ack = Request()
        ack.ready = True
        purgatory.park(["a"], 1000, ack.attempt, urgent=True)
        purgatory.wake("a")
        assert ack.answered
        assert len(order) == 9

    def test_deadlines_are_spread_too(self, clock: ManualClock, purgatory: Purgatory) -> None:
        """Long polls that end in the same tick are answered over several turns, all of them."""
        requests = [Request() for _ in range(25)]
        for request in requests:
            purgatory.park(["a"], 100, request.attempt)
        clock.advance(99)
        run_one_timer(clock)
        assert sum(request.answered for request in requests) == 10
        clock.advance(0)
        assert all(request.tries == [True] for request in requests)

    def test_one_that_is_cancelled_in_the_queue_is_not_tried(
        self, clock: ManualClock, purgatory: Purgatory
    ) -> None:
        """Its connection went while it waited for its turn."""
        self.park(purgatory, 10, [])
        request = Request()
        operation = purgatory.park(["a"], 1000, request.attempt)
        purgatory.wake("a")
        purgatory.cancel(operation)
        clock.advance(2000)
        assert request.tries == []

    def test_a_stop_answers_what_is_queued(self, clock: ManualClock, purgatory: Purgatory) -> None:
        """Also what has expired and waits for its turn."""
        requests = [Request() for _ in range(25)]
        for request in requests:
            purgatory.park(["a"], 100, request.attempt)
        clock.advance(99)
        run_one_timer(clock)
        purgatory.close()
        assert all(request.tries == [True] for request in requests)
        assert clock.next_due_s() is None

    def test_a_failed_attempt_holds_nobody_up(
        self, clock: ManualClock, purgatory: Purgatory
    ) -> None:
        """Its error is raised where it was tried; the others are tried, it is tried again."""

        def fail(expired: bool) -> bool:
            request.tries.append(expired)
            raise ValueError("on purpose")

        request, other = Request(), Request()
        purgatory.park(["a"], 100, fail)
        purgatory.park(["a"], 1000, other.attempt)
        with pytest.raises(ValueError, match="on purpose"):
            purgatory.wake("a")
        clock.advance(0)
        assert other.tries == [False]
        with pytest.raises(ValueError, match="on purpose"):
            clock.advance(110)
        assert request.tries == [False, True]


def test_a_parked_operation_can_wait_for_more(purgatory: Purgatory) -> None:
    """A key that is added later wakes it as the first do, and is gone with it."""
    request = Request()
    operation = purgatory.park([], 1000, request.attempt, missing_bytes=10)
    purgatory.watch(operation, "a")
    purgatory.watch(operation, "a")
    purgatory.wake("a", 9)
    assert request.tries == []
    purgatory.wake("a", 1)
    assert request.tries == [False]
    purgatory.cancel(operation)
    purgatory.watch(operation, "b")
    assert purgatory._by_key == {}


def run_one_timer(clock: ManualClock) -> None:
    """Move to the next timer and run it alone: one turn of an event loop."""
    delay_s = clock.next_due_s()
    assert delay_s is not None
    clock._move(clock.monotonic() + delay_s)
    timer = heapq.heappop(clock._timers)[2]
    timer.callback(*timer.args)


@pytest.mark.parametrize("seed", range(20))
def test_against_a_list_of_deadlines(seed: int) -> None:
    """Random parks, wakes, cancels and time: each request ends once, as a plain list has it."""
    chance = random.Random(seed)
    clock = ManualClock()
    purgatory = Purgatory(clock)
    waiting: list[tuple[float, str, Request, object]] = []
    now_ms = 0.0
    for _ in range(300):
        action = chance.random()
        if action < 0.5:
            request, key = Request(), chance.choice("abc")
            wait_ms = chance.randrange(1, 200)
            waiter = purgatory.park([key], wait_ms, request.attempt)
            waiting.append((now_ms + wait_ms, key, request, waiter))
        elif action < 0.6 and waiting:
            _, _, request, gone = waiting.pop(chance.randrange(len(waiting)))
            purgatory.cancel(gone)  # type: ignore[arg-type]
        elif action < 0.8:
            key = chance.choice("abc")
            for _, own_key, request, _ in waiting:
                request.ready = request.ready or (own_key == key and chance.random() < 0.5)
            purgatory.wake(key)
            for each in [one for one in waiting if one[1] == key and one[2].ready]:
                assert each[2].answered, f"seed {seed}: a ready request was not answered"
                waiting.remove(each)
        else:
            step_ms = chance.randrange(0, 100)
            clock.advance(step_ms)
            now_ms += step_ms
            for each in [one for one in waiting if one[0] <= now_ms - TICK_S * 1000]:
                assert each[2].answered, f"seed {seed}: a request outlived its deadline"
            for each in waiting:
                assert not each[2].answered or each[0] <= now_ms, f"seed {seed}: ended too early"
            waiting = [one for one in waiting if not one[2].answered]
    assert len(purgatory) == len(waiting)


class Key:
    """A partition as the purgatory sees it."""

    def __init__(self) -> None:
        self.standing = (5, 0)  # term, offset


def test_an_advance_tries_what_it_completes(clock: ManualClock, purgatory: Purgatory) -> None:
    """Of 1,000 that wait for offsets of one partition each is tried once, when its time comes."""
    key = Key()
    requests = [Request() for _ in range(1000)]
    for request in requests:
        request.ready = True
    for offset in sorted(range(1000), key=lambda each: each % 7):  # in any order
        purgatory.park_until({key: offset + 1}, 1000, requests[offset].attempt)
    for reached in range(0, 1001, 10):
        key.standing = (5, reached)
        purgatory.wake_soon(key, 100)
        purgatory.wake(key)
        clock.advance(0)
        assert [each.answered for each in requests] == [at < reached for at in range(1000)]
    assert [each.tries for each in requests] == [[False]] * 1000
    assert not purgatory._by_offset
    assert len(purgatory) == 0


def test_another_term_concerns_all_that_wait(clock: ManualClock, purgatory: Purgatory) -> None:
    """Whatever they wait for; and what is parked after the change waits in the new one."""
    key, before, after = Key(), Request(), Request()
    before.ready = after.ready = True
    purgatory.park_until({key: 10}, 1000, before.attempt)
    key.standing = (6, 0)
    purgatory.park_until({key: 20}, 1000, after.attempt)
    clock.advance(0)
    assert (before.answered, after.tries) == (True, [])
    key.standing = (6, 20)
    purgatory.wake(key)
    assert after.answered


def test_an_offset_that_is_reached_already_is_noticed(
    clock: ManualClock, purgatory: Purgatory
) -> None:
    """In the next turn, although no move follows."""
    key, request = Key(), Request()
    key.standing, request.ready = (5, 10), True
    purgatory.park_until({key: 10}, 1000, request.attempt)
    assert not request.answered
    clock.advance(0)
    assert request.answered


def test_an_acknowledgement_of_two_partitions_waits_for_both(purgatory: Purgatory) -> None:
    """It is tried when one has come so far, and again when the other has."""
    one, two, request = Key(), Key(), Request()
    purgatory.park_until({one: 1, two: 2}, 1000, request.attempt)
    one.standing = (5, 1)
    purgatory.wake(one)
    assert request.tries == [False]
    request.ready = True
    purgatory.wake(one)
    assert not request.answered
    two.standing = (5, 3)
    purgatory.wake(two)
    assert request.answered
    assert not purgatory._by_offset


def test_what_ends_otherwise_leaves_little_behind(clock: ManualClock, purgatory: Purgatory) -> None:
    """Operations that were cancelled, or whose time was up, while the offset stood still."""
    key, last = Key(), Request()
    for _ in range(10_000):
        purgatory.cancel(purgatory.park_until({key: 5}, 1000, Request().attempt))
    assert len(purgatory._by_offset.get(key, ())) <= 2 * GONE_MAX
    purgatory.park_until({key: 6}, 1000, last.attempt)
    clock.advance(1100)
    assert last.tries == [True]
    key.standing = (5, 6)
    purgatory.wake(key)
    assert not purgatory._by_offset
    assert last.tries == [True]
