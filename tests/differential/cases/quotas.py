"""DescribeClientQuotas, AlterClientQuotas, and the answers to clients over their quotas."""

from __future__ import annotations

import time

from tests.apache.batches import Record, batch
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

DESCRIBE = "DescribeClientQuotas"
ALTER = "AlterClientQuotas"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Parts = dict[str, str | None]


def entry(parts: Parts, **values: float | None) -> Fields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def alter(*entries: Fields, validate_only: bool = False) -> Fields:
    return {"entries": list(entries), "validate_only": validate_only}


def filtered(*components: tuple[str, int, str | None], strict: bool = False) -> Fields:
    return {
        "components": [
            {"entity_type": kind, "match_type": match, "match": name}
            for kind, match, name in components
        ],
        "strict": strict,
    }


def seen(peer: Peer, user: str, *values: tuple[str, float]) -> None:
    """What is asked about one user, when a change has come through."""
    peer.ask_until(
        DESCRIBE,
        1,
        filtered(("user", EXACT, user)),
        lambda answer: (
            sorted(
                (each["key"], each["value"])
                for entry in answer["entries"] or ()
                if len(entry["entity"]) == 1
                for each in entry["values"]
            )
            == sorted(values)
        ),
        "is seen",
    )


@case(ALTER)
def set_change_and_remove(peer: Peer, version: int) -> None:
    user = peer.name("user")
    everything = {
        "producer_byte_rate": 1024.0,
        "consumer_byte_rate": 2048.0,
        "request_percentage": 12.5,
        "controller_mutation_rate": 0.5,
    }
    peer.ask(ALTER, version, alter(entry({"user": user}, **everything)), "all keys")
    seen(peer, user, *everything.items())
    changes = entry({"user": user}, producer_byte_rate=7.0, request_percentage=None)
    peer.ask(ALTER, version, alter(changes), "one changed, one removed")
    peer.ask(ALTER, version, alter(entry({"user": user}, no_such_key=None)), "remove what is not")
    left = {**everything, "producer_byte_rate": 7.0}
    del left["request_percentage"]
    seen(peer, user, *left.items())
    wanted = alter(entry({"user": user}, producer_byte_rate=9.0), validate_only=True)
    peer.ask(ALTER, version, wanted, "validate only")
    gone: dict[str, float | None] = dict.fromkeys(everything)
    peer.ask(ALTER, version, alter(entry({"user": user}, **gone)), "all removed")
    seen(peer, user)


@case(ALTER)
def values_that_may_not_be(peer: Peer, version: int) -> None:
    user = {"user": peer.name("user")}
    for value in (0.0, -1.0, 0.5, 1.0000001, 1e19, 9.3e18, float("inf")):
        wanted = alter(entry(user, producer_byte_rate=value), validate_only=True)
        peer.ask(ALTER, version, wanted, f"a rate of {value}")
    for value in (0.0, 1e300):
        wanted = alter(entry(user, request_percentage=value), validate_only=True)
        peer.ask(ALTER, version, wanted, f"a percentage of {value}")
    for value in (0.0, 0.1, 3e9, 5.0):
        address = entry({"ip": "10.9.8.7"}, connection_creation_rate=value)
        peer.ask(ALTER, version, alter(address, validate_only=True), f"connections: {value}")
    peer.ask(ALTER, version, alter(entry(user, no_such_key=1.0)), "an unknown key")
    peer.ask(ALTER, version, alter(entry(user, connection_creation_rate=1.0)), "an address's key")
    address = entry({"ip": "10.9.8.7"}, producer_byte_rate=1.0)
    peer.ask(ALTER, version, alter(address), "a user's key")


@case(ALTER)
def entities_that_may_not_be(peer: Peer, version: int) -> None:
    rate = {"producer_byte_rate": 1.0}
    wrong: list[Parts] = [
        {},
        {"user": ""},
        {"client-id": ""},
        {"group": "g"},
        {"user": "u", "ip": "10.0.0.1"},
        {"ip": "not an address"},
        {"ip": "10.0.0.256"},
    ]
    for parts in wrong:
        peer.ask(ALTER, version, alter(entry(parts, **rate), validate_only=True), str(parts))
    twice = entry({"user": "u"}, **rate)
    twice["ops"] *= 2
    peer.ask(ALTER, version, alter(twice, validate_only=True), "a key twice")
    same = [entry({"user": "u"}, **rate) for _ in range(2)]
    peer.ask(ALTER, version, alter(*same, validate_only=True), "an entity twice")
    peer.ask(ALTER, version, alter(validate_only=True), "nothing")
    mixed = [entry({"user": peer.name("good")}, **rate), entry({"user": "u"}, bad=1.0)]
    peer.ask(ALTER, version, alter(*mixed, validate_only=True), "a good one and a bad one")


@case(DESCRIBE)
def by_filter(peer: Peer, version: int) -> None:
    user, client = peer.name("user"), peer.name("client")
    rate = {"producer_byte_rate": 1e9}
    entities: list[Parts] = [
        {"user": user},
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"client-id": client},
    ]
    peer.quietly(ALTER, 1, alter(*(entry(each, **rate) for each in entities)))
    seen(peer, user, *rate.items())
    exact = ("user", EXACT, user)
    for strict in (False, True):
        peer.ask(DESCRIBE, version, filtered(exact, strict=strict), f"a user, {strict}")
        both = filtered(exact, ("client-id", EXACT, client), strict=strict)
        peer.ask(DESCRIBE, version, both, f"both, {strict}")
        default = filtered(exact, ("client-id", DEFAULT, None), strict=strict)
        peer.ask(DESCRIBE, version, default, f"the default of a user, {strict}")
        any_of = filtered(exact, ("client-id", SPECIFIED, None), strict=strict)
        peer.ask(DESCRIBE, version, any_of, f"all of a user, {strict}")
    peer.ask(DESCRIBE, version, filtered(("user", EXACT, peer.name("other"))), "nobody")
    gone = {"producer_byte_rate": None}
    peer.quietly(ALTER, 1, alter(*(entry(each, **gone) for each in entities)))


@case(DESCRIBE)
def filters_that_may_not_be(peer: Peer, version: int) -> None:
    wrong = [
        [("", EXACT, "a")],
        [("user", EXACT, "a"), ("user", DEFAULT, None)],
        [("group", EXACT, "a")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "a")],
        [("user", SPECIFIED, "a")],
        [("user", 3, None)],
        [("user", -1, "a")],
        [("ip", EXACT, "10.0.0.1"), ("user", EXACT, "a")],
        [("ip", SPECIFIED, None), ("client-id", DEFAULT, None)],
    ]
    for components in wrong:
        peer.ask(DESCRIBE, version, filtered(*components), str(components))


# What the time between requests may change of a throttle time.
NEAR_MS = 2_000
SILENT_S = 0.1
PATIENCE_S = 30.0


def as_client(peer: Peer, **quotas: float | None) -> Parts:
    """Go on as a client id of this case's own, which has these quotas."""
    parts: Parts = {"client-id": peer.name("client")}
    peer.quietly(ALTER, 1, alter(entry(parts, **quotas)))
    wanted = filtered(("client-id", EXACT, parts["client-id"]), strict=True)
    deadline = time.monotonic() + PATIENCE_S
    while bool(peer.client.ask(DESCRIBE, 1, wanted)["entries"]) != any(quotas.values()):
        assert time.monotonic() < deadline, "the quota does not come"
        time.sleep(0.01)
    return parts


def anew(peer: Peer) -> None:
    """On another connection, as the same client."""
    peer.reconnect()
    peer.client.client_id = peer.name("client")


def told(answer: Fields, near_ms: int = 0) -> str:
    """How long the client is to wait, about."""
    throttle_ms = answer["throttle_time_ms"]
    near = abs(throttle_ms - near_ms) < NEAR_MS if near_ms else not throttle_ms
    return f"about {near_ms if near else throttle_ms} ms"


def muted(peer: Peer) -> bool:
    """Whether nothing is answered on this connection now; it is of no use afterwards."""
    raw = peer.client._socket
    before = raw.gettimeout()
    raw.settimeout(SILENT_S)
    try:
        peer.client.ask("ApiVersions", 0, {})
    except TimeoutError:
        return True
    finally:
        raw.settimeout(before)
    return False


def production(topic: str, size: int, acks: int = -1) -> Fields:
    records = batch([Record(value=b"x" * size)])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": acks, "timeout_ms": 5000, "topic_data": data}


@case("Produce", only=(3, 9, 12))
def over_the_quota(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    parts = as_client(peer, producer_byte_rate=20_000)
    anew(peer)
    # Ten seconds' worth may come at once.
    answer = peer.ask("Produce", version, production(topic, 100_000), "within it")
    peer.note("within it", told(answer))
    answer = peer.ask("Produce", version, production(topic, 200_000), "beyond it")
    peer.note("beyond it", told(answer, 5_000))
    peer.note("muted", muted(peer))
    anew(peer)
    answer = peer.ask("Produce", version, production(topic, 10), "still beyond it")
    peer.note("still beyond it", told(answer, 4_500))
    anew(peer)
    peer.client.send("Produce", version, production(topic, 10, acks=0))
    peer.note("muted without an answer", muted(peer))
    peer.reconnect()
    as_client(peer, producer_byte_rate=None)
    peer.note("of", sorted(parts))


@case("Fetch", only=(4, 11, 12))
def over_the_consumers_quota(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for _ in range(6):
        peer.quietly("Produce", 9, production(topic, 30_000))
    as_client(peer, consumer_byte_rate=9_000)
    anew(peer)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 80_000}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 30,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    answer = peer.ask("Fetch", version, fields, "within it")
    peer.note("within it", told(answer))
    answer = peer.ask("Fetch", version, fields, "beyond it: nothing")
    peer.note("beyond it", told(answer, 7_500))
    peer.note("muted", muted(peer))
    peer.reconnect()
    as_client(peer, consumer_byte_rate=None)


@case("CreateTopics", only=(4, 5, 6, 7))
def over_the_quota_of_changes(peer: Peer, version: int) -> None:
    as_client(peer, controller_mutation_rate=1)
    anew(peer)

    def creation(*stems: str, count: int = 1) -> Fields:
        topics = [
            {"name": peer.name(each), "num_partitions": count, "replication_factor": 1}
            for each in stems
        ]
        return {"topics": topics, "timeout_ms": 9999, "validate_only": True}

    # Eleven tokens; a request takes them also if it is only validated.
    answer = peer.ask("CreateTopics", version, creation("a", "b", count=10), "all that there are")
    peer.note("all that there are", told(answer, 0 if version >= 6 else 9_000))
    anew(peer)
    answer = peer.ask("CreateTopics", version, creation("c", "c/d"), "more")
    peer.note("more", told(answer, 9_000 if version >= 6 else 11_000))
    peer.note("muted", muted(peer))
    peer.reconnect()
    as_client(peer, controller_mutation_rate=None)
