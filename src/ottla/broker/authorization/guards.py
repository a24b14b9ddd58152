"""What carries out a line of the table: asks for rights, and answers for what is denied.

A guard puts itself around the handler of an API. What is denied the handler never sees; the answers
about it are joined to the handler's. Guards of one API stand in each other.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.broker.authorization.rights import CLUSTER, rights_of
from ottla.broker.context import Context, Pending
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.wire.schema import Struct

Handle = Callable[[Any, Context], Any]
Failure = Callable[[Any, ErrorCode, Context], Any]

FAILED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    """An operation on resources of a type."""

    kind: ResourceType
    operation: Operation


class Guarded(NamedTuple):
    """What a guard stands around."""

    handle: Handle
    failure: Failure  # the response with the same error for all that the request names
    response: type[Any]


class Guard(Protocol):
    """A line of the table, or one of the checks in it."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """All that it may ask for."""

    def around(self, inner: Guarded) -> Handle:
        """The handler with the guard around it."""


class Inside:
    """The handler itself asks, by `context.rights`: what it shows or does depends on it."""

    def __init__(self, *needs: tuple[ResourceType, Operation]) -> None:
        self.needs = tuple(Need(*each) for each in needs)

    def around(self, inner: Guarded) -> Handle:
        return inner.handle


class Whole:
    """The whole request needs one right; `field` has the name of the resource."""

    def __init__(
        self,
        kind: ResourceType,
        operation: Operation,
        field: str = "",
        *,
        unless: Callable[[Any, Context], bool] | None = None,
    ) -> None:
        """`unless`: the handler refuses it for another reason first, or nobody needs a right."""
        self.needs = (Need(kind, operation),)
        self._field = field
        self._unless = unless

    def around(self, inner: Guarded) -> Handle:
        ((kind, operation),) = self.needs
        field, unless, handle = self._field, self._unless, inner.handle

        def check(request: Any, context: Context) -> Any:
            if unless is None or not unless(request, context):
                name = (getattr(request, field) or "") if field else CLUSTER_NAME
                if not rights_of(context).allows(operation, kind, name):
                    return inner.failure(request, FAILED[kind], context)
            return handle(request, context)

        return check


class AnyOf:
    """The whole request needs one of several rights on the cluster; only the last is logged."""

    def __init__(self, *operations: Operation) -> None:
        self.needs = tuple(Need(CLUSTER, each) for each in operations)

    def around(self, inner: Guarded) -> Handle:
        *silently, last = (need.operation for need in self.needs)

        def check(request: Any, context: Context) -> Any:
            rights = rights_of(context)
            if any(
                rights.allows_cluster(each, log_denied=False) for each in silently
            ) or rights.allows_cluster(last):
                return inner.handle(request, context)
            return inner.failure(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, context)

        return check


NameOf = Callable[[Any, Context], str | None]
Answers = Callable[[Sequence[Any], Any, Guarded, Context], list[Any]]


class Each:
    """Each item of a list needs a right by itself; what is denied is answered beside the others."""

    def __init__(
        self,
        kind: ResourceType,
        operation: Operation,
        field: str,
        into: str,
        *,
        name: NameOf | str = "name",
        answers: Answers | None = None,
        first: bool = False,
        once: bool = False,
        unique: bool = False,
        or_cluster: Operation | None = None,
    ) -> None:
        """`field` and `into` are the lists of the request and of the response.

        `name`: an item's name, or the field that has it ("": the item itself); None leaves the item
        to the handler. `answers` are those for denied items; without it they are those of the
        handler's `failure`. `first`: they come before the others. `once`: an item counts once,
        however often it is named. `unique`: what is named twice is left to the handler.
        `or_cluster`: this right on the cluster does as well.
        """
        self.needs: tuple[Need, ...] = (Need(kind, operation),)
        if or_cluster is not None:
            self.needs += (Need(CLUSTER, or_cluster),)
        self._or_cluster = or_cluster
        self._field = field
        self._into = into
        self._name_of: NameOf = named(name) if isinstance(name, str) else name
        self._answers = answers
        self._first = first
        self._once = once
        self._unique = unique

    def around(self, inner: Guarded) -> Handle:
        kind, operation = self.needs[0]
        or_cluster, field, name_of = self._or_cluster, self._field, self._name_of

        def check(request: Any, context: Context) -> Any:
            items = getattr(request, field)
            if not items:
                return inner.handle(request, context)
            rights = rights_of(context)
            if or_cluster is not None and rights.allows_cluster(or_cluster, log_denied=False):
                return inner.handle(request, context)
            if self._once:
                items = list(dict.fromkeys(items))
            names = [name_of(item, context) for item in items]
            if self._unique:
                counts = Counter(names)
                names = [each if counts[each] == 1 else None for each in names]
            known = [each for each in names if each is not None]
            allowed = rights.allowed(operation, kind, known)
            if allowed.issuperset(known):
                return inner.handle(request, context)
            left, denied = parted(items, names, allowed)
            answers = self._denied(denied, request, inner, context)
            if not left:
                return inner.response(**{self._into: answers})
            answer = inner.handle(with_field(request, field, left), context)
            return then(answer, lambda response: self._join(response, answers))

        return check

    def _denied(
        self, denied: list[Any], request: Any, inner: Guarded, context: Context
    ) -> list[Any]:
        if self._answers is not None:
            return self._answers(denied, request, inner, context)
        response = inner.failure(
            with_field(request, self._field, denied), FAILED[self.needs[0].kind], context
        )
        found: list[Any] = getattr(response, self._into)
        return found

    def _join(self, response: Any, answers: list[Any]) -> Any:
        if getattr(response, "error_code", 0):
            return response
        others = getattr(response, self._into)
        setattr(response, self._into, [*answers, *others] if self._first else [*others, *answers])
        return response


class AllOf:
    """The request is refused as a whole unless each name in one of its fields may be used."""

    def __init__(self, kind: ResourceType, operation: Operation, field: str) -> None:
        self.needs = (Need(kind, operation),)
        self._field = field

    def around(self, inner: Guarded) -> Handle:
        ((kind, operation),) = self.needs

        def check(request: Any, context: Context) -> Any:
            names = getattr(request, self._field)
            if names and not rights_of(context).allowed(operation, kind, names).issuperset(names):
                return inner.failure(request, FAILED[kind], context)
            return inner.handle(request, context)

        return check


class Shown:
    """What the answer shows depends on rights: `change` is given the response."""

    def __init__(
        self, change: Callable[[Any, Context], Any], *needs: tuple[ResourceType, Operation]
    ) -> None:
        self.needs = tuple(Need(*each) for each in needs)
        self._change = change

    def around(self, inner: Guarded) -> Handle:
        change = self._change

        def check(request: Any, context: Context) -> Any:
            answer = inner.handle(request, context)
            return then(answer, lambda response: change(response, context))

        return check


class InOrder:
    """One guard in the other, the first outermost."""

    def __init__(self, *guards: Guard) -> None:
        self._guards = guards
        self.needs = tuple(need for guard in guards for need in guard.needs)

    def around(self, inner: Guarded) -> Handle:
        for guard in reversed(self._guards):
            inner = inner._replace(handle=guard.around(inner))
        return inner.handle


class Own:
    """What is particular to one API: `check` is given the handler, the request and its context."""

    def __init__(
        self,
        check: Callable[[Guarded, Any, Context], Any],
        *needs: tuple[ResourceType, Operation],
    ) -> None:
        self.needs = tuple(Need(*each) for each in needs)
        self._check = check

    def around(self, inner: Guarded) -> Handle:
        return partial(self._check, inner)


def named(field: str) -> NameOf:
    """An item's name is in this field; "" if it is the item itself."""
    if not field:
        return lambda item, context: item
    return lambda item, context: getattr(item, field)


def parted(
    items: Sequence[Any], names: Sequence[str | None], allowed: Container[str]
) -> tuple[list[Any], list[Any]]:
    """The items that are allowed or have no name, and those that are denied."""
    left: list[Any] = []
    denied: list[Any] = []
    for item, name in zip(items, names, strict=True):
        (left if name is None or name in allowed else denied).append(item)
    return left, denied


def with_field(request: Struct, field: str, value: Any) -> Any:
    """A copy of a request with another value in one field."""
    copied = copy.copy(request)
    setattr(copied, field, value)
    return copied


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """The answer of a handler, changed when it is there."""
    if isinstance(answer, Pending):
        inner, outer = answer, Pending(exclusive=answer.exclusive)

        def settled(response: Any, error: BaseException | None) -> None:
            if error is not None:
                outer.fail(error)
                return
            try:
                outer.resolve(None if response is None else change(response))
            except Exception as fault:
                outer.fail(fault)

        outer.on_cancel(inner.cancel)
        inner.on_settled(settled)
        return outer
    if isinstance(answer, Awaitable):
        return _later(answer, change)
    return None if answer is None else change(answer)


async def _later(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    response = await answer
    return None if response is None else change(response)
