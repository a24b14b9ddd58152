"""Interceptors that change headers: timestamp, host, static, uuid, remove_header."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from ..config.options import Options
from ..config.patterns import python_pattern
from ..context import Context
from ..events import EventBatch
from ..matching.bounded import Bounded
from ..output import Interceptor


def with_header(batch: EventBatch, name: str, value: str, *, preserve: bool) -> EventBatch:
    """The batch with a header of all its events; `preserve` keeps one that is there."""
    own = batch.own_headers
    if preserve:
        return batch if name in batch.headers else set_for_all(batch, name, value)
    if own is not None:
        own = [
            {key: text for key, text in each.items() if key != name} if name in each else each
            for each in own
        ]
        batch = replace(batch, own_headers=own)
    return set_for_all(batch, name, value)


def set_for_all(batch: EventBatch, name: str, value: str) -> EventBatch:
    return replace(batch, headers={**batch.headers, name: value})


def timestamp(name: str, options: Options, context: Context) -> Interceptor:
    header, preserve = options.text("headerName"), options.flag("preserveExisting")

    def intercept(batch: EventBatch) -> EventBatch:
        return with_header(batch, header, str(int(time.time() * 1000)), preserve=preserve)

    return intercept


def host(name: str, options: Options, context: Context) -> Interceptor:
    header, preserve = options.text("hostHeader"), options.flag("preserveExisting")
    value = address() if options.flag("useIP") else socket.getfqdn()
    return lambda batch: with_header(batch, header, value, preserve=preserve)


def address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def static(name: str, options: Options, context: Context) -> Interceptor:
    header, value = options.text("key"), options.text("value")
    preserve = options.flag("preserveExisting")
    return lambda batch: with_header(batch, header, value, preserve=preserve)


def uuid(name: str, options: Options, context: Context) -> Interceptor:
    header, prefix = options.text("headerName"), options.text("prefix")
    preserve = options.flag("preserveExisting")

    def intercept(batch: EventBatch) -> EventBatch:
        if preserve and header in batch.headers:
            return batch
        own = batch.own_headers or [{}] * len(batch)
        return replace(
            batch,
            own_headers=[
                each if preserve and header in each else {**each, header: f"{prefix}{uuid4()}"}
                for each in own
            ],
        )

    return intercept


def remove_header(name: str, options: Options, context: Context) -> Interceptor:
    goes = removed(name, options)

    def intercept(batch: EventBatch) -> EventBatch:
        own = batch.own_headers
        return replace(
            batch,
            headers={key: text for key, text in batch.headers.items() if not goes(key)},
            own_headers=own
            and [{key: text for key, text in each.items() if not goes(key)} for each in own],
        )

    return intercept


def removed(name: str, options: Options) -> Callable[[str], bool]:
    """Whether a header goes: by its name, by a list of names, by a pattern of the whole name."""
    names = {options.text_or_none("withName")}
    listed = options.text_or_none("fromList")
    if listed is not None:
        names.update(re.split(python_pattern(options.text("fromListSeparator")), listed))
    pattern = options.text_or_none("matching")
    if pattern is None:
        return names.__contains__
    owner = f"matching of {name}"
    matches = Bounded(python_pattern(pattern), owner, whole=True).fullmatch
    return lambda header: header in names or matches(header) is not None
