"""Transactions: every API of theirs, what it answers in every state, and what readers see after.

Kafka writes its markers in its own time, so an answer that says "not yet" (CONCURRENT_TRANSACTIONS)
right after an end is asked for again; ours never needs that.
"""

from __future__ import annotations

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer
from tests.differential.transactional import (
    Ids,
    add,
    added,
    begin,
    bumped,
    describe,
    end,
    error_of_adding,
    error_of_end,
    find,
    init,
    produce,
    read,
    records,
)

# ---- InitProducerId --------------------------------------------------------------------------


@case("InitProducerId")
def transactional(peer: Peer, version: int) -> None:
    name = peer.name("id")
    find(peer, name)
    for timeout in (0, -1, 900_001, 2**31 - 1):
        fields = init(name, transaction_timeout_ms=timeout)
        peer.ask("InitProducerId", version, fields, f"timeout {timeout}")
    peer.ask_until("InitProducerId", version, init(name), error_of_end, "first")
    peer.ask("InitProducerId", version, init(name), "second")
    peer.ask("InitProducerId", version, init(name, transaction_timeout_ms=900_000), "third")
    describe(peer, name, "after")


@case("InitProducerId", since=3)
def expected_producer(peer: Peer, version: int) -> None:
    """KIP-360: only who still has the id and epoch may go on."""
    name = peer.name("id")
    producer, epoch = begin(peer, name)

    def ask(label: str, id_: int, epoch: int) -> None:
        fields = init(name, producer_id=id_, producer_epoch=epoch)
        peer.ask("InitProducerId", version, fields, label)

    ask("right", producer, epoch)
    ask("again, as if the answer were lost", producer, epoch)
    ask("once more", producer, epoch)
    ask("the new one", producer, epoch + 1)
    ask("two behind", producer, epoch)
    ask("ahead", producer, epoch + 7)
    ask("another id", producer + 1_000_000, epoch)
    ask("half an id", producer, -1)
    begin(peer, name)
    ask("fenced", producer, epoch + 2)
    fresh = peer.name("unknown")
    fields = {"transactional_id": fresh, "producer_id": producer, "producer_epoch": 3}
    peer.ask("InitProducerId", version, init(fresh) | fields, "a name nobody knows")


@case("InitProducerId")
def takes_over_an_open_transaction(peer: Peer, version: int) -> None:
    """The open transaction is aborted under an epoch that nobody is given."""
    name, topic = peer.name("id"), peer.create_topic()
    ids = begin(peer, name)
    add(peer, name, ids, topic)
    peer.quietly("Produce", 9, produce(name, topic, records(ids)))
    describe(peer, name, "open", "Ongoing")
    peer.ask("InitProducerId", version, init(name), "first")
    peer.ask_until("InitProducerId", version, init(name), error_of_end, "retried")
    describe(peer, name, "after")
    read(peer, topic, "after")
    peer.ask("Produce", 9, produce(name, topic, records(ids, 1)), "the old producer writes")
    peer.ask("EndTxn", 3, end(name, ids, True), "the old producer commits")
    peer.ask("EndTxn", 1, end(name, ids, True), "the old producer commits, of old")


# ---- AddPartitionsToTxn ----------------------------------------------------------------------


@case("AddPartitionsToTxn")
def partitions(peer: Peer, version: int) -> None:
    name, topic = peer.name("id"), peer.create_topic(partitions=3)
    ids = begin(peer, name)
    producer, epoch = ids

    def ask(label: str, ids: Ids, *topics: tuple[str, list[int]], name: str = name) -> None:
        fields = added(name, ids, *topics, version=version)
        peer.ask_until("AddPartitionsToTxn", version, fields, error_of_adding, label)

    ask("one", ids, (topic, [0]))
    ask("the same", ids, (topic, [0]))
    ask("two", ids, (topic, [1, 2]))
    ask("none", ids)
    ask("beyond", ids, (topic, [1, 3]))
    ask("unknown topic", ids, (topic, [0]), (peer.name("nothing"), [0]))
    ask("another id", (producer + 1_000_000, epoch), (topic, [0]))
    ask("old epoch", (producer, epoch - 1), (topic, [0]))
    ask("future epoch", (producer, epoch + 1), (topic, [0]))
    ask("unknown name", ids, (topic, [0]), name=peer.name("nobody"))
    ask("empty name", ids, (topic, [0]), name="")
    describe(peer, name, "after")


@case("AddPartitionsToTxn", since=4)
def verified_partitions(peer: Peer, version: int) -> None:
    """What one broker asks another before it lets a producer write."""
    name, topic = peer.name("id"), peer.create_topic(partitions=2)
    ids = begin(peer, name)

    def ask(label: str, ids: Ids, name: str = name) -> None:
        fields = added(name, ids, (topic, [0, 1]), version=version)
        fields["transactions"][0]["verify_only"] = True
        peer.ask("AddPartitionsToTxn", version, fields, label)

    ask("nothing added", ids)
    add(peer, name, ids, topic, 1)
    ask("one added", ids)
    ask("another id", (ids[0] + 1_000_000, ids[1]))
    ask("another epoch", (ids[0], ids[1] + 1))
    ask("unknown name", ids, peer.name("nobody"))
    ask("empty name", ids, "")
    several = added(name, ids, (topic, [0]), version=version)
    other = peer.name("other")
    more = added(other, begin(peer, other), (topic, [0]), version=version)
    several["transactions"] += more["transactions"]
    peer.ask("AddPartitionsToTxn", version, several, "two transactions")


# ---- EndTxn ----------------------------------------------------------------------------------


@case("EndTxn")
def ends(peer: Peer, version: int) -> None:
    """Commit and abort in every state, by the right producer and by others."""
    topic = peer.create_topic()
    for commit in (True, False):
        name = peer.name(f"id-{commit}")
        ids = begin(peer, name)

        def ask(label: str, ids: Ids, commit: bool, name: str = name) -> Fields:
            return peer.ask_until(
                "EndTxn", version, end(name, ids, commit), error_of_end, f"{commit} {label}"
            )

        ask("unknown name", ids, commit, peer.name("nobody"))
        ask("empty name", ids, commit, "")
        ask("another id", (ids[0] + 1_000_000, ids[1]), commit)
        ask("another epoch", (ids[0], ids[1] + 1), commit)
        answer = ask("before anything", ids, commit)
        ids = bumped(answer, ids)
        describe(peer, name, "before anything", "Empty", "CompleteAbort")
        add(peer, name, ids, topic)
        peer.quietly("Produce", 9, produce(name, topic, records(ids)))
        done = "CompleteCommit" if commit else "CompleteAbort"
        answer = ask("the open one", ids, commit)
        describe(peer, name, "the open one", done)
        ask("a retry", ids, commit)
        ask("the other way", ids, not commit)
        ids = bumped(answer, ids)
        ask("with what was granted", ids, commit)
        describe(peer, name, "at the end", done, "CompleteAbort")
        ask("an old epoch", (ids[0], ids[1] - 2), commit)
    read(peer, topic, "after")


# ---- offsets ---------------------------------------------------------------------------------


@case("AddOffsetsToTxn")
def groups(peer: Peer, version: int) -> None:
    name, group = peer.name("id"), peer.name("group")
    find(peer, group, 0)
    ids = begin(peer, name)

    def ask(label: str, ids: Ids, name: str = name, group: str = group) -> None:
        fields = {
            "transactional_id": name,
            "producer_id": ids[0],
            "producer_epoch": ids[1],
            "group_id": group,
        }
        peer.ask("AddOffsetsToTxn", version, fields, label)

    ask("first", ids)
    ask("again", ids)
    ask("another id", (ids[0] + 1_000_000, ids[1]))
    ask("another epoch", (ids[0], ids[1] + 1))
    ask("unknown name", ids, peer.name("nobody"))
    ask("empty name", ids, "")
    ask("empty group", ids, group="")


@case("TxnOffsetCommit")
def offsets(peer: Peer, version: int) -> None:
    name, group, topic = peer.name("id"), peer.name("group"), peer.create_topic(partitions=2)
    find(peer, group, 0)
    ids = begin(peer, name)

    def ask(label: str, ids: Ids, group: str = group, topic: str = topic, **fields: object) -> None:
        asked: Fields = {
            "transactional_id": name,
            "group_id": group,
            "producer_id": ids[0],
            "producer_epoch": ids[1],
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"},
                        {"partition_index": 5, "committed_offset": 8, "committed_metadata": ""},
                    ],
                }
            ],
        }
        peer.ask("TxnOffsetCommit", version, asked | fields, label)

    def fetch(label: str, stable: bool) -> None:
        asked = [{"name": topic, "partition_indexes": [0, 1]}]
        fields = {"groups": [{"group_id": group, "topics": asked}], "require_stable": stable}
        peer.ask("OffsetFetch", 8, fields, label)

    ask("before it is added", ids)
    peer.quietly(
        "AddOffsetsToTxn",
        3,
        {
            "transactional_id": name,
            "producer_id": ids[0],
            "producer_epoch": ids[1],
            "group_id": group,
        },
    )
    ask("added", ids)
    ask("again", ids)
    fetch("pending", True)
    fetch("not yet", False)
    ask("another epoch", (ids[0], ids[1] - 1))
    ask("no id", (-1, -1))
    ask("another id", (ids[0] + 1_000_000, 0))
    ask("unknown topic", ids, topic=peer.name("nothing"))
    ask("empty group", ids, group="")
    if version >= 3:
        ask("a generation of nobody", ids, generation_id=4, member_id="nobody")
        ask("a static member of nobody", ids, group_instance_id="nobody")
    peer.ask_until("EndTxn", 3, end(name, ids, True), error_of_end)
    describe(peer, name, "committed", "CompleteCommit")
    fetch("committed", True)


# ---- records ---------------------------------------------------------------------------------


@case("Produce")
def in_a_transaction(peer: Peer, version: int) -> None:
    """Before the partition is added, after it, after the end, and by a zombie."""
    name, topic = peer.name("id"), peer.create_topic()
    ids = begin(peer, name)
    place = topic if version < 13 else peer.topic_id(topic)

    def ask(label: str, ids: Ids, sequence: int, name: str | None = name) -> None:
        fields = produce(name, place, records(ids, sequence))
        peer.ask("Produce", version, fields, label)

    ask("without a name", ids, 0, None)
    ask("another name", ids, 0, peer.name("nobody"))
    ask("another id", (ids[0] + 1_000_000, 0), 0)
    ask("future epoch", (ids[0], ids[1] + 1), 0)
    ask("not added", ids, 0)
    if version < 12:
        add(peer, name, ids, topic)
    ask("first", ids, 0)
    ask("second", ids, 1)
    ask("the second again", ids, 1)
    ask("a gap", ids, 5)
    ask("old epoch", (ids[0], ids[1] - 1), 0)
    read(peer, topic, "while it is open")
    bumps = 5 if version >= 12 else 3
    answer = peer.ask_until("EndTxn", bumps, end(name, ids, True), error_of_end)
    describe(peer, name, "ended", "CompleteCommit")
    read(peer, topic, "committed")
    ask("after the end", ids, 2)
    now = bumped(answer, ids)
    if version >= 12:
        ask("in the next", now, 0)
        peer.ask_until("EndTxn", bumps, end(name, now, False), error_of_end, "abort")
        describe(peer, name, "aborted", "CompleteAbort")
    read(peer, topic, "at the end")
    peer.ask(
        "DescribeProducers",
        0,
        {"topics": [{"name": topic, "partition_indexes": [0]}]},
    )


@case("Produce", since=9, until=12)
def not_from_the_beginning(peer: Peer, version: int) -> None:
    """The first batch of a partition is missing; a transaction without records in between."""
    name, topic = peer.name("id"), peer.create_topic()
    ids = begin(peer, name)

    def ask(label: str, ids: Ids, sequence: int) -> None:
        peer.ask("Produce", version, produce(name, topic, records(ids, sequence)), label)

    if version < 12:
        add(peer, name, ids, topic)
    ask("a later batch", ids, 3)
    ask("the first", ids, 0)
    ask("the next", ids, 1)
    ask("the one after the later", ids, 4)
    bumps = 5 if version >= 12 else 3
    answer = peer.ask_until("EndTxn", bumps, end(name, ids, False), error_of_end)
    describe(peer, name, "ended", "CompleteAbort")
    ids = bumped(answer, ids)
    answer = peer.ask_until("EndTxn", bumps, end(name, ids, False), error_of_end, "nothing in it")
    describe(peer, name, "ended again", "CompleteAbort")
    ids = bumped(answer, ids)
    if version < 12:
        add(peer, name, ids, topic)
    ask("in the next one", ids, 0)
    ask("where it went on", ids, 2)
    read(peer, topic, "at the end")


@case("Fetch", since=4)
def aborted_and_open(peer: Peer, version: int) -> None:
    """Two producers, one aborts, one stays open: what is read, and which aborts are listed."""
    topic = peer.create_topic()
    first, second = peer.name("a"), peer.name("b")
    one, two = begin(peer, first), begin(peer, second)
    add(peer, first, one, topic)
    add(peer, second, two, topic)
    peer.quietly("Produce", 9, produce(first, topic, records(one, 0, 2)))
    peer.quietly("Produce", 9, produce(second, topic, records(two, 0, 3)))
    peer.quietly("Produce", 9, produce(first, topic, records(one, 2, 1)))
    peer.ask_until("EndTxn", 3, end(first, one, False), error_of_end)
    describe(peer, first, "aborted", "CompleteAbort")
    where: Fields = {"topic": topic} if version < 13 else {"topic_id": peer.topic_id(topic)}
    for level in (0, 1):
        for offset in (0, 1, 2, 5, 6, 7):
            part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            fields = {
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "isolation_level": level,
                "session_epoch": -1,
                "topics": [where | {"partitions": [part]}],
            }
            peer.ask("Fetch", version, fields, f"level {level} offset {offset}")
    peer.ask_until("EndTxn", 3, end(second, two, True), error_of_end)
    describe(peer, second, "committed", "CompleteCommit")
    read(peer, topic, "all decided")


# ---- looking at them -------------------------------------------------------------------------


@case("DescribeTransactions")
def described(peer: Peer, version: int) -> None:
    name, topic = peer.name("id"), peer.create_topic(partitions=2)
    ids = begin(peer, name)
    asked = {"transactional_ids": [name, peer.name("nobody"), ""]}
    peer.ask("DescribeTransactions", version, asked, "empty")
    add(peer, name, ids, topic, 0, 1)
    peer.ask("DescribeTransactions", version, asked, "open")
    peer.ask("DescribeTransactions", version, {"transactional_ids": []}, "none")


@case("ListTransactions")
def listed(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    names = [peer.name(stem) for stem in ("a", "b", "c")]
    ids = [begin(peer, name) for name in names]
    add(peer, names[1], ids[1], topic)
    only = {"producer_id_filters": [each[0] for each in ids]}

    def ask(label: str, **fields: object) -> None:
        peer.ask("ListTransactions", version, only | fields, label)

    ask("all")
    ask("open", state_filters=["Ongoing"])
    ask("two states", state_filters=["Ongoing", "Empty"])
    ask("unknown states", state_filters=["Ongoing", "Nothing", "ongoing"])
    ask("only unknown states", state_filters=["Nothing"])
    ask("one", producer_id_filters=[ids[0][0]])
    ask("nobody", producer_id_filters=[9_999_999])
    if version >= 1:
        ask("for an hour", duration_filter=3_600_000)
        ask("for no time", duration_filter=-1)
    if version >= 2:
        ask("by pattern", transactional_id_pattern=".*-[ac]")
        ask("by a part", transactional_id_pattern="[ac]")
        ask("by no pattern", transactional_id_pattern="")
        ask("by a broken pattern", transactional_id_pattern="(ab[")
        ask("by a pattern without case", transactional_id_pattern="(?i).*-[AC]")
        ask("by what RE2 does not have", transactional_id_pattern=r"(.)\1.*")


@case("WriteTxnMarkers")
def written_markers(peer: Peer, version: int) -> None:
    """As an administrator ends what nobody coordinates."""
    name, topic = peer.name("id"), peer.create_topic(partitions=2)
    begin(peer, name)
    ids = begin(peer, name)
    add(peer, name, ids, topic, 0, 1)
    peer.quietly("Produce", 9, produce(name, topic, records(ids)))

    def ask(label: str, ids: Ids, *, coordinator_epoch: int = 0, **fields: object) -> None:
        marker: Fields = {
            "producer_id": ids[0],
            "producer_epoch": ids[1],
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0, 7]}],
            "coordinator_epoch": coordinator_epoch,
        }
        peer.ask("WriteTxnMarkers", version, {"markers": [marker | fields]}, label)

    peer.ask("WriteTxnMarkers", version, {"markers": []}, "nothing")
    ask("old epoch", (ids[0], ids[1] - 1))
    ask("no epoch", (ids[0], -1))
    ask("no id", (-1, 0))
    if version >= 2:
        ask("the same epoch of a later generation", ids, transaction_version=2)
    ask("right", ids, coordinator_epoch=3)
    ask("an older coordinator", ids, coordinator_epoch=2)
    ask("again", ids, coordinator_epoch=3)
    ask("somebody nobody knows", (ids[0] + 1_000_000, 0))
    if version >= 2:
        ask("later, of a later generation", (ids[0], ids[1] + 1), transaction_version=2,
            coordinator_epoch=3)  # fmt: skip
        ask("again, of a later generation", (ids[0], ids[1] + 1), transaction_version=2,
            coordinator_epoch=3)  # fmt: skip
    read(peer, topic, "after")
