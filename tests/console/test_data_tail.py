"""Following a topic: what is appended is shown, within bounds, for as long as somebody watches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
import uvicorn

from ottla.client.producer import Producer
from ottla.console.access.middleware import protect
from ottla.console.access.open import OpenAccess
from ottla.console.app import create_app
from ottla.console.context import Console
from ottla.console.data.filtering import SqlCondition
from ottla.console.data.messages import Messages
from ottla.console.data.service import Data
from ottla.console.data.tail import BEHIND_MAX, SHOWN_PER_POLL_MAX, Tail
from ottla.console.data.work import Deadline, Stop
from ottla.testing import Broker
from tests.waiting import eventually

from .live import LiveCluster
from .pictures import FakeHistory


@pytest.fixture(scope="module")
def cluster(ottla_shared_broker: Broker) -> Iterator[LiveCluster]:
    made = LiveCluster(ottla_shared_broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture(scope="module")
def producer(ottla_shared_broker: Broker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=ottla_shared_broker.bootstrap_servers) as made:
        yield made


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for sent in [producer.send(topic, value, partition=0) for value in values]:
        sent.get(30)


def test_only_what_is_appended_is_shown(cluster: LiveCluster, producer: Producer) -> None:
    """Nothing of before, each new record once, then nothing again."""
    send(producer, "console-tail", b"before")
    tail = Tail(cluster.admin(), "console-tail", {0: 1})
    assert not tail.step()
    send(producer, "console-tail", b"1", b"2")
    assert [row.record.value for row in tail.step().rows] == [b"1", b"2"]
    assert not tail.step()


def test_a_burst_is_shown_in_part_and_counted(cluster: LiveCluster, producer: Producer) -> None:
    """The newest few; all others are in the count, with a condition too."""
    send(producer, "console-burst", *(b'{"n": %d}' % each for each in range(100)))
    seen = Tail(cluster.admin(), "console-burst", {0: 0}).step()
    assert [row.offset for row in seen.rows] == list(range(100 - SHOWN_PER_POLL_MAX, 100))
    assert len(seen.rows) + seen.skipped == 100
    with SqlCondition("n % 2 = 0", [b'{"n": 1}'], Stop(), Deadline(30_000)) as condition:
        seen = Tail(cluster.admin(), "console-burst", {0: 0}, condition=condition).step()
    assert all(row.offset % 2 == 0 for row in seen.rows)
    assert len(seen.rows) + seen.skipped == 50


def test_one_that_cannot_follow_is_set_to_the_end() -> None:
    """Further behind than BEHIND_MAX: the rest is counted as skipped."""

    class Answer:
        error, batches, next_offset, log_start_offset = None, (), 5, 0
        high_watermark = 10 + BEHIND_MAX

    class Far:
        def read_batches(self, offsets: dict[Any, int], **options: object) -> dict[Any, Answer]:
            return dict.fromkeys(offsets, Answer())

    tail = Tail(cast(Any, Far()), "t", {0: 5})
    seen = tail.step()
    assert (seen.skipped, tail.positions) == (BEHIND_MAX + 5, {0: BEHIND_MAX + 10})


def test_the_stream_ends_with_the_page(cluster: LiveCluster, producer: Producer) -> None:
    """Over HTTP: records come as events; a browser that leaves frees the thread."""
    send(producer, "console-watch", b"before")
    console = Console({"main": cast(Any, cluster)}, FakeHistory())
    data = Data(console)
    app = create_app(console, parts=("web",), routes=Messages(data).routes())
    config = uvicorn.Config(protect(app, OpenAccess()), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/c/main/topics/console-watch/messages/tail"
        with httpx.stream("GET", url, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = (
                json.loads(line.removeprefix("data: "))
                for line in answer.iter_lines()
                if line.startswith("data: ")
            )
            assert next(events)["rows"] == []
            assert data.tails.taken == 1
            send(producer, "console-watch", b"now")
            (row,) = next(events)["rows"]
            assert row["value"]["text"] == "now"
        eventually(lambda: data.tails.taken == 0)
    finally:
        server.should_exit = True
        thread.join()
