"""What carries out a line of the table: asks for rights, and answers for what is denied.

A guard stands around the handler of an API. What is denied the handler never sees; the answers
about it are joined to the handler's.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.broker.authorization.rights import Rights
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


class Asked(NamedTuple):
    """A request on its way to its handler."""

    request: Any
    context: Context
    rights: Rights
    handle: Handle  # what comes behind this guard
    failure: Failure  # the same error for all that the request names
    response: type[Any]


class Guard(Protocol):
    """One line of the table."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """All that it may ask for."""

    def __call__(self, asked: Asked) -> Any:
        """The answer, as a handler gives it."""


class Free:
    """Whoever is connected may ask it."""

    needs: tuple[Need, ...] = ()

    def __call__(self, asked: Asked) -> Any:
        return asked.handle(asked.request, asked.context)


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
        """`unless`: it is refused for another reason first, by the handler."""
        self.needs = (Need(kind, operation),)
        self._field = field
        self._unless = unless

    def __call__(self, asked: Asked) -> Any:
        ((kind, operation),) = self.needs
        request = asked.request
        name = (getattr(request, self._field) or "") if self._field else CLUSTER_NAME
        if not asked.rights.allows(operation, kind, name) and (
            self._unless is None or not self._unless(request, asked.context)
        ):
            return asked.failure(request, FAILED[kind], asked.context)
        return asked.handle(request, asked.context)


class AnyOf:
    """The whole request needs one of several rights on the cluster; only the last is logged."""

    def __init__(self, *operations: Operation) -> None:
        self.needs = tuple(Need(ResourceType.CLUSTER, each) for each in operations)

    def __call__(self, asked: Asked) -> Any:
        last = self.needs[-1].operation
        for _, operation in self.needs:
            if asked.rights.allows_cluster(operation, log_denied=operation is last):
                return asked.handle(asked.request, asked.context)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return asked.failure(asked.request, code, asked.context)


Answers = Callable[[Sequence[Any], Asked], list[Any]]


class Each:
    """Each item of a list needs a right by itself; what is denied is answered beside the others."""

    def __init__(
        self,
        kind: ResourceType,
        operation: Operation,
        field: str,
        into: str,
        *,
        name: Callable[[Any, Context], str | None] | str = "name",
        answers: Answers | None = None,
        first: bool = False,
        handles_none: bool = False,
    ) -> None:
        """`field` and `into` are the lists of the request and of the response.

        `name`: an item's name, or the field that has it; None leaves the item to the handler.
        `answers` are those for denied items; without it they are those of the handler's `failure`.
        `first`: they come before the others. `handles_none`: the handler decides about a request
        of which nothing is left.
        """
        self.needs = (Need(kind, operation),)
        self._field = field
        self._into = into
        self._name = name
        self._answers = answers
        self._first = first
        self._handles_none = handles_none

    def __call__(self, asked: Asked) -> Any:
        ((kind, operation),) = self.needs
        request, context = asked.request, asked.context
        items = getattr(request, self._field)
        if items is None:
            return asked.handle(request, context)
        names = [self._name_of(item, context) for item in items]
        allowed = asked.rights.allowed(
            operation, kind, (each for each in names if each is not None)
        )
        denied = [
            item
            for item, name in zip(items, names, strict=True)
            if name is not None and name not in allowed
        ]
        if not denied:
            return asked.handle(request, context)
        answers = self._denied(denied, asked, kind)
        left = [
            item for item, name in zip(items, names, strict=True) if name is None or name in allowed
        ]
        if not left and not self._handles_none:
            return asked.response(**{self._into: answers})
        answer = asked.handle(with_field(request, self._field, left), context)
        return then(answer, lambda response: self._join(response, answers), context)

    def _name_of(self, item: Any, context: Context) -> str | None:
        name = self._name
        if isinstance(name, str):
            found: str = getattr(item, name) if name else item
            return found
        return name(item, context)

    def _denied(self, denied: list[Any], asked: Asked, kind: ResourceType) -> list[Any]:
        if self._answers is not None:
            return self._answers(denied, asked)
        request = with_field(asked.request, self._field, denied)
        found: list[Any] = getattr(asked.failure(request, FAILED[kind], asked.context), self._into)
        return found

    def _join(self, response: Any, answers: list[Any]) -> Any:
        if getattr(response, "error_code", 0):
            return response
        others = getattr(response, self._into)
        setattr(response, self._into, [*answers, *others] if self._first else [*others, *answers])
        return response


class InOrder:
    """One guard behind the other."""

    def __init__(self, *guards: Guard) -> None:
        self._guards = guards
        self.needs = tuple(need for guard in guards for need in guard.needs)

    def __call__(self, asked: Asked) -> Any:
        return self._from(0, asked)

    def _from(self, place: int, asked: Asked) -> Any:
        if place == len(self._guards):
            return asked.handle(asked.request, asked.context)
        return self._guards[place](
            asked._replace(
                handle=lambda request, context: self._from(
                    place + 1, asked._replace(request=request, context=context)
                )
            )
        )


class Own:
    """What is particular to one API; `needs` says what `check` asks for."""

    def __init__(self, check: Callable[[Asked], Any], *needs: tuple[ResourceType, Operation]):
        self.needs = tuple(Need(*each) for each in needs)
        self._check = check

    def __call__(self, asked: Asked) -> Any:
        return self._check(asked)


def with_field(request: Struct, field: str, value: Any) -> Any:
    """A copy of a request with another value in one field."""
    copied = copy.copy(request)
    setattr(copied, field, value)
    return copied


def then(answer: Any, change: Callable[[Any], Any], context: Context) -> Any:
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

        inner.on_settled(settled)
        outer.on_cancel(inner.cancel)
        return outer
    if isinstance(answer, Awaitable):
        return _later(answer, change, context)
    return None if answer is None else change(answer)


async def _later(answer: Awaitable[Any], change: Callable[[Any], Any], context: Context) -> Any:
    response = await answer
    return None if response is None else change(response)
