"""A broker that answered before and is away now: how long it is waited for, and how that ends.

`brokerTimeout` is the option of the source and of the sink. The driver and the tasks wait for
Metadata of a client that they have (`BrokerWait`), or repeat what got no answer (`repeated`). What
fails meanwhile for want of an answer ends with `BrokerAway`: which brokers, why each is not
reached, for how long, and the option (`broker_away_named`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.config import COMMON
from ottla.client.errors import (
    BrokerResponseError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)

if TYPE_CHECKING:
    from ottla.client.network.cluster_client import ConsumerClient
    from ottla.client.network.cluster_metadata import Cluster

log = logging.getLogger("ottla.spark")
T = TypeVar("T")

# Of Java's options of TLS and of logins, those that have nothing to act on here: scripts set them.
JAVA_SECURITY = frozenset(
    {
        "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
        "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
    }
)  # fmt: skip
BROKER_TIMEOUT = "15m"  # the default of the option
# A broker that answers later than this is taken for away; so often the wait is logged.
AWAY_AFTER_S = 5.0
WARN_EVERY_S = 30.0
REPEAT_PAUSE_S = 1.0


class BrokerAway(KafkaError):
    """No broker has answered for as long as `brokerTimeout` allows."""

    def __init__(self, fact: str, waited_s: float) -> None:
        super().__init__(
            f"{fact}, for {waited_s:.0f} s (brokerTimeout)\n"
            "Try: start the broker, then this again: it goes on where it was; the option "
            "brokerTimeout says how long to wait"
        )


class BrokerWait:
    """One wait for new metadata of a client; `was_away` afterwards: no broker answered at first."""

    def __init__(self, client: ConsumerClient, timeout_ms: float) -> None:
        self.client = client
        self.timeout_s = timeout_ms / 1000
        self.was_away = False

    def cluster(self) -> Cluster:
        """New metadata, waiting for a broker that is away; raises BrokerAway."""
        client = self.client
        future = client.refresh()  # fails only where another try cannot help
        began = time.monotonic()
        pause_s = min(AWAY_AFTER_S, self.timeout_s)
        while True:
            try:
                found = client.wait(future, pause_s * 1000)
            except KafkaTimeoutError:
                self.was_away = True
                waited_s = time.monotonic() - began
                fact = first_line(client.metadata.no_broker_text())
                if waited_s >= self.timeout_s:
                    raise BrokerAway(fact, waited_s) from None
                left_s = self.timeout_s - waited_s
                log.warning("%s: waiting for it, for %.0f s more at most", fact, left_s)
                pause_s = min(WARN_EVERY_S, left_s)
            else:
                if self.was_away:
                    log.warning("a broker answers again, after %.0f s", time.monotonic() - began)
                return found


def repeated(attempt: Callable[[], T], timeout_s: float) -> T:
    """The attempt's result; one that got no answer is repeated until the time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except KafkaError as problem:
            if not unanswered(problem) or time.monotonic() + REPEAT_PAUSE_S > deadline:
                raise
            log.warning("%s: trying again", first_line(str(problem)))
        time.sleep(REPEAT_PAUSE_S)


@contextmanager
def broker_away_named(properties: Mapping[str, Any]) -> Iterator[None]:
    """What fails for want of an answer, while no broker answers, is raised as BrokerAway."""
    began = time.monotonic()
    try:
        yield
    except KafkaError as problem:
        fact = None if not unanswered(problem) else no_answer(properties)
        if fact is None:
            raise
        raise BrokerAway(fact, time.monotonic() - began) from problem


def unanswered(problem: BaseException | None) -> bool:
    """Whether an error is that no answer came, not an answer of a broker."""
    found = False
    while problem is not None:
        if isinstance(problem, BrokerResponseError | BrokerAway):
            return False
        found = found or isinstance(problem, KafkaTimeoutError | KafkaConnectionError)
        problem = problem.__cause__
    return found


def no_answer(properties: Mapping[str, Any]) -> str | None:
    """Which brokers do not answer now, and why; None if one answers."""
    from ottla.client.admin import Admin

    try:
        Admin({**common(properties), "bootstrap.timeout.ms": int(AWAY_AFTER_S * 1000)}).close()
    except NoBrokersAvailable as problem:
        return first_line(str(problem))
    return None


def common(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a client's properties that are not a producer's or a consumer's alone."""
    known = {
        name for option in COMMON for name in (option.name.replace("_", "."), *option.properties)
    }
    return {name: value for name, value in properties.items() if name in known}


def first_line(text: str) -> str:
    return text.partition("\n")[0]
