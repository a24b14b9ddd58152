"""Small things with `concurrent.futures.Future` that several parts of the clients need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def done(value: T) -> Future[T]:
    """A future that has its result."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def settled(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """When all of them are over, one way or the other: the list of them."""
    waited = list(futures)
    together: Future[list[Future[T]]] = Future()
    left = len(waited)
    if not waited:
        together.set_result(waited)

    def one_over(_: Future[T]) -> None:
        nonlocal left
        left -= 1
        if not left:
            together.set_result(waited)

    for each in waited:
        each.add_done_callback(one_over)
    return together


def then(future: Future[T], turn: Callable[[T], U]) -> Future[U]:
    """The result of `turn` on the future's result; what either raises goes on."""
    after: Future[U] = Future()

    def over(finished: Future[T]) -> None:
        try:
            turned = turn(finished.result())
        except BaseException as problem:
            after.set_exception(problem)
        else:
            after.set_result(turned)

    future.add_done_callback(over)
    return after


def then_wait(future: Future[T], turn: Callable[[T], Future[U]]) -> Future[U]:
    """As `then`, where `turn` gives a future itself."""
    after: Future[U] = Future()

    def over(finished: Future[T]) -> None:
        try:
            following = turn(finished.result())
        except BaseException as problem:
            after.set_exception(problem)
            return
        following.add_done_callback(lambda last: copy(last, after))

    future.add_done_callback(over)
    return after


def copy(source: Future[T], target: Future[T]) -> None:
    """Let `target` end as `source` did."""
    problem = source.exception()
    if problem is not None:
        target.set_exception(problem)
    else:
        target.set_result(source.result())
