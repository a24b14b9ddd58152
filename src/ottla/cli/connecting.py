"""How a command gets its client, and how a client's error becomes a command's failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.config import Option

BOOTSTRAP_TIMEOUT_MS = 5_000  # a person waits; a program would rather have its 30 seconds


@contextmanager
def admin(bootstrap: str, properties: Mapping[str, Any] | None = None) -> Iterator[Admin]:
    """An admin client for the time of a command."""
    from ottla.client.admin import Admin

    with failures():
        made = Admin(**client_options(bootstrap, properties))
        try:
            yield made
        finally:
            made.close()


def client_options(bootstrap: str, properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Properties of a file with the command line's servers; what no client here knows is left out.

    A file of options for Kafka's tools may hold any of Java's; a tool must not stop for them.
    """
    from ottla.client.config import COMMON

    given = known_options(COMMON, properties or {})
    return {"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS, **given, "bootstrap_servers": bootstrap}


def known_options(table: Iterable[Option], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the properties that a client here has, under its names; no classes of Java."""
    known = {option.name for option in table}
    return {
        name.replace(".", "_"): value
        for name, value in properties.items()
        if name.replace(".", "_") in known and not name.endswith("serializer")
    }


def file_options(table: Iterable[Option], path: str | None) -> dict[str, Any]:
    """Those of a file of properties that a client here has, by Kafka's names."""
    if path is None:
        return {}
    from ottla.cli.kafka_scripts.options import read_properties

    found = read_properties(path)
    known = known_options(table, found)
    return {name: value for name, value in found.items() if name.replace(".", "_") in known}


@contextmanager
def failures() -> Iterator[None]:
    """Turns a client's error into two lines."""
    import logging

    from ottla.client.errors import KafkaError

    # What the client logs it also raises in the end, and a command says it once.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    try:
        yield
    except KafkaError as error:
        raise failure_of(error) from error


def failure_of(error: Exception) -> Failure:
    fact, _, hint = text_of(error).partition("\nTry: ")
    return Failure(" ".join(fact.split("\n")), hint or "--help says how the command is used")


def text_of(error: Exception) -> str:
    """What the broker or the client said, without the error's name."""
    if error.args and error.args[0]:
        return str(error.args[0])
    return str(getattr(error, "description", "") or error)


def uuid_text(value: Any) -> str:
    """A topic's id as Kafka prints it: base64 without padding."""
    import base64

    return base64.urlsafe_b64encode(value.bytes)[:22].decode()


def uuid_of(text: str) -> Any:
    """The id that such a text stands for; ValueError says what is wrong with it."""
    import base64
    import uuid

    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(
            f"Input string `{text}` decoded as {len(raw)} bytes, which is not equal to the "
            "expected 16 bytes of a base64-encoded UUID"
        )
    return uuid.UUID(bytes=raw)
