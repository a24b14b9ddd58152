"""Fetch sessions (KIP-227): incremental requests and answers, epochs, eviction from the cache."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.sessions import EPOCH_MAX, CachedPartition, FetchSessionCache, next_epoch
from ottla.replica.partition import Partition
from ottla.seams.chance import SeededChance
from ottla.seams.clock import ManualClock
from ottla.wire.api.fetch import FetchPartition, FetchRequest, ForgottenTopic
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness, fetch_request, values
from tests.broker.test_fetch import delete


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


class Client:
    """A consumer that keeps a session, as clients do."""

    def __init__(self, harness: BrokerHarness, version: int = 11) -> None:
        self.harness = harness
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(self, *wanted: Any, **fields: Any) -> Any:
        """The answer; the session goes on as the protocol says."""
        response = self.harness.ask(self.request(*wanted, **fields), self.version)
        if response.error_code == 0:
            self.session_id = response.session_id
            self.epoch = 0 if not self.session_id else next_epoch(self.epoch)
        return response

    def request(self, *wanted: Any, **fields: Any) -> FetchRequest:
        given = {"session_id": self.session_id, "session_epoch": self.epoch} | fields
        return fetch_request(*wanted, **given)


def partitions(response: Any) -> list[int]:
    """The partitions that an answer speaks of, in order."""
    return [data.partition_index for topic in response.responses for data in topic.partitions]


@pytest.mark.parametrize("version", range(7, 19))
def test_an_incremental_answer_has_only_news(harness: BrokerHarness, version: int) -> None:
    """Everything at first, then only partitions that have something to tell."""
    topic_id = harness.create("t", 3)
    topic = topic_id if version >= 13 else "t"
    client = Client(harness, version)
    first = client.fetch(*((topic, index, 0) for index in range(3)))
    assert first.session_id != 0
    assert partitions(first) == [0, 1, 2]
    assert client.fetch().responses == []
    harness.produce("t", 1, b"a")
    second = client.fetch()
    assert values(second) == {(topic, 1): [b"a"]}
    assert second.session_id == first.session_id


def test_a_reader_that_goes_on_gets_what_it_has_not_seen(harness: BrokerHarness) -> None:
    """Once its offset has moved there is nothing new, until there is."""
    harness.create("t", 2)
    client = Client(harness)
    client.fetch(("t", 0, 0), ("t", 1, 0))
    harness.produce("t", 0, b"a")
    assert values(client.fetch()) == {("t", 0): [b"a"]}
    assert client.fetch(("t", 0, 1)).responses == []
    harness.produce("t", 0, b"b")
    assert values(client.fetch()) == {("t", 0): [b"b"]}


def test_a_moved_log_start_is_news(harness: BrokerHarness) -> None:
    """Also without records."""
    harness.create("t")
    client = Client(harness)
    harness.produce("t", 0, b"a")
    client.fetch(("t", 0, 1))
    assert client.fetch().responses == []
    harness.partition("t").log.delete_records_before(1)
    response = client.fetch()
    assert [data.log_start_offset for data in response.responses[0].partitions] == [1]
    assert client.fetch().responses == []


def test_an_error_is_answered_every_time_and_its_end_too(harness: BrokerHarness) -> None:
    """A partition with an error is in every answer; when it is gone, once more."""
    harness.create("t")
    client = Client(harness)
    assert client.fetch(("t", 0, 5)).responses[0].partitions[0].error_code == 1
    assert client.fetch().responses[0].partitions[0].error_code == 1
    response = client.fetch(("t", 0, 0))
    assert response.responses[0].partitions[0].error_code == 0
    assert client.fetch().responses == []


def test_partitions_are_added_changed_and_forgotten(harness: BrokerHarness) -> None:
    """With later requests of the session."""
    harness.create("t", 3)
    for index in range(3):
        harness.produce("t", index, b"%d" % index)
    client = Client(harness)
    assert partitions(client.fetch(("t", 0, 0))) == [0]
    assert partitions(client.fetch(("t", 1, 0), ("t", 0, 1))) == [1]
    forget = [ForgottenTopic(topic="t", partitions=[1])]
    assert client.fetch(forgotten_topics_data=forget).responses == []
    assert partitions(client.fetch(("t", 2, 0))) == [2]


def test_forgetting_everything_ends_the_session(harness: BrokerHarness) -> None:
    """An empty session is closed and answered without one, as in Kafka."""
    harness.create("t")
    client = Client(harness)
    client.fetch(("t", 0, 0))
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    response = client.fetch(forgotten_topics_data=forget)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert len(harness.broker.sessions) == 0


def test_who_got_records_goes_to_the_back(harness: BrokerHarness) -> None:
    """With a limit that fits one partition, all partitions get their turn."""
    harness.create("t", 3)
    for index in range(3):
        for _ in range(3):
            harness.produce("t", index, b"x" * 100)
    client = Client(harness)
    served = []
    first = client.fetch(*(("t", index, 0) for index in range(3)), max_bytes=200)
    served.append([part for part in partitions(first) if values(first)["t", part]])
    for _ in range(3):
        response = client.fetch(max_bytes=200)
        served.append([part for part in partitions(response) if values(response)["t", part]])
    assert served == [[0], [0], [1], [2]] or sorted(served[1:]) == [[0], [1], [2]]


class TestErrors:
    """Sessions that are not what the client believes."""

    def test_an_unknown_session(self, harness: BrokerHarness) -> None:
        """FETCH_SESSION_ID_NOT_FOUND, for the request as a whole."""
        response = harness.ask(fetch_request(session_id=77, session_epoch=1), 11)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (response.session_id, response.responses) == (0, [])

    @pytest.mark.parametrize("epoch", [2, 5, EPOCH_MAX])
    def test_a_wrong_epoch(self, harness: BrokerHarness, epoch: int) -> None:
        """INVALID_FETCH_SESSION_EPOCH: a request was lost or came twice."""
        harness.create("t")
        client = Client(harness)
        client.fetch(("t", 0, 0))
        response = client.fetch(session_epoch=epoch)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert client.fetch().error_code == 0

    def test_ids_and_names_do_not_mix(self, harness: BrokerHarness) -> None:
        """FETCH_SESSION_TOPIC_ID_ERROR when the version changes between the two."""
        topic_id = harness.create("t")
        for before, after, topic in ((12, 13, "t"), (13, 12, topic_id)):
            client = Client(harness, before)
            client.fetch((topic, 0, 0))
            client.version = after
            response = client.fetch()
            assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_a_request_that_overtakes_a_waiting_one(self, harness: BrokerHarness) -> None:
        """The waiting one's answer would be out of date: INVALID_FETCH_SESSION_EPOCH."""
        harness.create("t")
        client = Client(harness)
        client.fetch(("t", 0, 0))
        waiting = harness.post(client.request(max_wait_ms=500), 11)
        client.epoch += 1
        assert client.fetch().error_code == 0
        harness.advance(510)
        assert waiting.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_a_topic_made_anew_under_a_session(self, harness: BrokerHarness) -> None:
        """INCONSISTENT_TOPIC_ID while the session still names the old one."""
        old_id = harness.create("t")
        client = Client(harness, 13)
        client.fetch((old_id, 0, 0))
        delete(harness, "t")
        response = client.fetch()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.responses[0].partitions[0].error_code == unknown
        harness.create("t")
        response = client.fetch()
        assert response.responses[0].topic_id == old_id
        wrong = ErrorCode.INCONSISTENT_TOPIC_ID
        assert response.responses[0].partitions[0].error_code == wrong

    def test_a_topic_id_that_becomes_known(self, harness: BrokerHarness) -> None:
        """UNKNOWN_TOPIC_ID until the broker has the topic, then records."""
        with BrokerHarness(seed=9) as other:  # the same chance, and so the same id in the next
            Client(other, 13).fetch((bytes(range(16)), 0, 0))
            topic_id = other.create("t")
        with BrokerHarness(seed=9) as same:
            client = Client(same, 13)
            response = client.fetch((topic_id, 0, 0))
            error = ErrorCode.UNKNOWN_TOPIC_ID
            assert response.responses[0].partitions[0].error_code == error
            assert same.create("t") == topic_id
            same.produce("t", 0, b"a")
            assert values(client.fetch()) == {(topic_id, 0): [b"a"]}


def test_a_full_request_closes_the_session_it_names(harness: BrokerHarness) -> None:
    """Epoch 0 begins anew; epoch -1 goes without a session."""
    harness.create("t")
    client = Client(harness)
    first = client.fetch(("t", 0, 0)).session_id
    response = client.fetch(("t", 0, 0), session_epoch=0)
    assert response.session_id not in (0, first)
    assert len(harness.broker.sessions) == 1
    response = client.fetch(("t", 0, 0), session_epoch=-1)
    assert (response.session_id, partitions(response)) == (0, [0])
    assert len(harness.broker.sessions) == 0


def test_a_broker_without_places_declines() -> None:
    """Session id 0, and full answers every time."""
    with BrokerHarness(max_incremental_fetch_session_cache_slots=0) as harness:
        harness.create("t")
        client = Client(harness)
        for _ in range(3):
            response = client.fetch(("t", 0, 0))
            assert (response.session_id, partitions(response)) == (0, [0])


def test_epochs_wrap_around_without_0() -> None:
    """0 means a new session and -1 none."""
    assert next_epoch(1) == 2
    assert next_epoch(EPOCH_MAX) == 1
    assert next_epoch(-1) == -1


class TestCache:
    """Which session is evicted for which."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def sessions(self, clock: ManualClock) -> FetchSessionCache:
        return FetchSessionCache(clock, SeededChance(1), 2, eviction_ms=1000)

    def create(self, sessions: FetchSessionCache, size: int, *, privileged: bool = False) -> int:
        wanted = [
            CachedPartition(("t", index), "t", bytes(16), FetchPartition(partition=index))
            for index in range(size)
        ]
        return sessions.create(wanted, size, uses_ids=False, privileged=privileged)

    def use(self, sessions: FetchSessionCache, session_id: int) -> None:
        session = sessions._sessions[session_id]
        sessions.touch(session)

    def test_a_full_cache_of_young_sessions_declines(self, sessions: FetchSessionCache) -> None:
        """Also for a bigger newcomer."""
        assert self.create(sessions, 1)
        assert self.create(sessions, 1)
        assert self.create(sessions, 100) == 0

    def test_an_idle_session_is_evicted(
        self, sessions: FetchSessionCache, clock: ManualClock
    ) -> None:
        """The one unused for longest goes, whatever its size."""
        idle = self.create(sessions, 50)
        busy = self.create(sessions, 1)
        clock.advance(1001)
        self.use(sessions, busy)
        assert self.create(sessions, 1)
        assert sessions.find(idle, 1, False) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert busy in sessions._sessions
        assert sessions.evictions == 1

    def test_an_old_session_is_evicted_to_a_bigger_one(
        self, sessions: FetchSessionCache, clock: ManualClock
    ) -> None:
        """But not to a smaller one."""
        small, large = self.create(sessions, 2), self.create(sessions, 5)
        for _ in range(3):
            clock.advance(600)
            self.use(sessions, small)
            self.use(sessions, large)
        assert self.create(sessions, 1) == 0
        assert self.create(sessions, 3)
        assert small not in sessions._sessions
        assert large in sessions._sessions

    def test_a_follower_evicts_a_consumer(self, sessions: FetchSessionCache) -> None:
        """Replication comes first; a consumer never evicts a follower."""
        self.create(sessions, 5)
        self.create(sessions, 5)
        assert self.create(sessions, 1, privileged=True)
        assert self.create(sessions, 1, privileged=True)
        assert self.create(sessions, 1, privileged=True) == 0
        assert self.create(sessions, 100) == 0


class TestCost:
    """What a fetch costs follows what moved."""

    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The partitions that are read, one by one."""
        seen: list[int] = []
        read = Partition.read

        def counting(self: Partition, *arguments: Any) -> Any:
            seen.append(self.index)
            return read(self, *arguments)

        monkeypatch.setattr(Partition, "read", counting)
        return seen

    @pytest.fixture
    def client(self, harness: BrokerHarness, reads: list[int]) -> Client:
        """In a session of 300 partitions that has nothing new."""
        harness.create("t", 300)
        client = Client(harness)
        client.fetch(*(("t", index, 0) for index in range(300)))
        assert client.fetch().responses == []
        reads.clear()
        return client

    def test_an_idle_session_reads_nothing(self, client: Client, reads: list[int]) -> None:
        """However many partitions it has."""
        assert client.fetch().responses == []
        assert reads == []

    def test_a_wake_reads_what_moved(
        self, harness: BrokerHarness, client: Client, reads: list[int]
    ) -> None:
        """One record in one of 300 partitions: one read, and none when the client went on."""
        waiting = harness.post(client.request(max_wait_ms=500), 11)
        client.epoch += 1
        assert reads == []
        harness.produce("t", 7, b"a")
        harness.settle()
        assert partitions(waiting.response) == [7]
        assert reads == [7]
        assert client.fetch(("t", 7, 1)).responses == []
        client.fetch()
        assert reads == [7]

    def test_a_consumer_with_all_there_is_gets_its_errors(
        self, harness: BrokerHarness, client: Client, reads: list[int]
    ) -> None:
        """Nothing is looked up for it, but its epochs are checked, and what is new is answered."""
        client.version = 12
        for field, error in (
            ("current_leader_epoch", ErrorCode.UNKNOWN_LEADER_EPOCH),
            ("last_fetched_epoch", ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            request = client.request(("t", 7, 0))
            setattr(request.topics[0].partitions[0], field, 9)
            (topic,) = harness.ask(request, 12).responses
            client.epoch += 1
            assert [data.error_code for data in topic.partitions] == [error]
            client.fetch(("t", 7, 0))  # which says that there is no error any more
            reads.clear()
        harness.produce("t", 7, b"a")
        client.fetch()
        assert client.fetch(("t", 7, 1)).responses == []
        assert reads == [7]
        harness.partition("t", 7).delete_records_before(1)
        assert partitions(client.fetch(("t", 7, 1))) == [7]

    def test_min_bytes_counts_over_partitions(
        self, harness: BrokerHarness, client: Client, reads: list[int]
    ) -> None:
        """Partitions that were idle when the request was parked add up, each append of them."""
        waiting = harness.post(client.request(max_wait_ms=500, min_bytes=300), 11)
        for index in (3, 3, 4):
            harness.produce("t", index, b"a")
            harness.settle()
            assert not waiting.ready
        assert reads == []
        harness.produce("t", 3, b"x" * 100)
        harness.settle()
        assert sorted(partitions(waiting.response)) == [3, 4]

    def test_a_closed_session_is_not_called_any_more(
        self, harness: BrokerHarness, client: Client
    ) -> None:
        """Its partitions forget it, and the request that was parked in it is answered."""
        watchers = [harness.partition("t", index)._watchers for index in range(300)]
        assert all(len(each) == 1 for each in watchers)
        waiting = harness.post(client.request(max_wait_ms=500), 11)
        harness.broker.sessions.close(client.session_id)
        assert waiting.response.responses == []
        assert not any(watchers)
        assert len(harness.broker.purgatory) == 0

    def test_a_forgotten_partition_is_not_read(
        self, harness: BrokerHarness, client: Client, reads: list[int]
    ) -> None:
        """Neither when it was idle nor when it was ready."""
        harness.produce("t", 5, b"a")
        forgotten = [ForgottenTopic(topic="t", partitions=[5, 6])]
        assert client.fetch(forgotten_topics_data=forgotten).responses == []
        harness.produce("t", 6, b"a")
        assert client.fetch().responses == []
        assert reads == []

    def test_a_lost_connection_leaves_the_session(
        self, harness: BrokerHarness, client: Client, reads: list[int]
    ) -> None:
        """The parked request is gone, what moves meanwhile is there for the next request."""
        waiting = harness.post(client.request(max_wait_ms=500), 11)
        assert waiting.pending is not None
        waiting.pending.cancel()
        assert len(harness.broker.purgatory) == 0
        harness.produce("t", 8, b"a")
        harness.settle()
        assert reads == []
        client.epoch += 1
        assert partitions(client.fetch()) == [8]

    def test_a_session_shrinks_after_its_first_fetch(
        self, harness: BrokerHarness, client: Client
    ) -> None:
        """Of 300 partitions that were ready once, an idle session keeps no memory."""
        client.fetch()
        session = harness.broker.sessions._sessions[client.session_id]
        assert session.ready.__sizeof__() == {}.__sizeof__()
