"""What an authorizer costs: CPU of the broker per small produce and fetch, with and without one."""

from __future__ import annotations

import struct

from benchmarks import clients, raw
from benchmarks.measures import Run
from benchmarks.servers import Ottla
from ottla.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    ResourcePattern,
    ResourceType,
)

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC = "checked"
SECONDS = 3.0
# Many on their way together, of which each costs least, and one after the other.
IN_FLIGHT = {"": 50, ", one at a time": 1}
ACLS_PER_REQUEST = 5_000
# Everybody may make ACLs and topics until there are ACLs about them.
CHECKED = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
KINDS: tuple[tuple[str, int | None], ...] = (
    ("without an authorizer", None),
    ("with 10 ACLs", 10),
    ("with 10,000 ACLs", 10_000),
)


def costs(run: Run) -> None:
    """Each kind of broker in turn, the rounds interleaved."""
    brokers = [(label, count, Ottla(None if count is None else CHECKED)) for label, count in KINDS]
    try:
        for _, count, broker in brokers:
            broker.start()
            clients.make_topic(broker.bootstrap, TOPIC)
            if count is not None:
                make_acls(broker.bootstrap, count)
            one_round(broker, IN_FLIGHT[""])
        for _ in range(run.rounds):
            for how, in_flight in IN_FLIGHT.items():
                for label, _, broker in brokers:
                    produce_us, fetch_us = one_round(broker, in_flight)
                    produce, fetch = f"small produce{how}", f"fetch of one record{how}"
                    run.record(f"CPU µs per {produce}, {label}", broker.name, produce_us)
                    run.record(f"CPU µs per {fetch}, {label}", broker.name, fetch_us)
    finally:
        for _, _, broker in brokers:
            broker.remove()


def make_acls(bootstrap: str, count: int) -> None:
    """Those that let us write and read, and others about other users and topics."""
    acls = [acl("User:ANONYMOUS", each, TOPIC) for each in (ACLOperation.READ, ACLOperation.WRITE)]
    acls += [acl(f"User:{number}", ACLOperation.READ, f"other-{number}") for number in range(count)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        for start in range(0, len(acls), ACLS_PER_REQUEST):
            made = admin.create_acls(acls[start : start + ACLS_PER_REQUEST])
            assert not made["failed"], made["failed"][0]


def acl(who: str, operation: ACLOperation, topic: str) -> ACL:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    return ACL(who, "*", operation, ACLPermissionType.ALLOW, pattern)


def one_round(broker: Ottla, in_flight: int) -> tuple[float, float]:
    before = broker.cpu_s()
    produced = raw.produce_rate(broker.port, TOPIC, in_flight=in_flight, seconds=SECONDS)
    between = broker.cpu_s()
    fetch = raw.fetch_frame(TOPIC, 0, 0, wait_ms=0, bytes_min=1, bytes_max=1)
    fetched = raw.request_rate(
        broker.port, fetch, answers_records, in_flight=in_flight, seconds=SECONDS
    )
    after = broker.cpu_s()
    return (
        (between - before) / (produced * SECONDS) * 1e6,
        (after - between) / (fetched * SECONDS) * 1e6,
    )


def answers_records(answer: bytes) -> bool:
    """Whether a fetch of one partition (v11) is answered without an error."""
    error_at = 4 + 4 + 2 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
    code: int = struct.unpack_from(">h", answer, error_at)[0]
    return code == 0


MEASURES = {"authorization": costs}
