"""`ottla queue`: what waits, what is dead, and dead letters back to where they came from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla import AcknowledgeType, Queue, ShareConsumer
from ottla.cli.main import run
from ottla.client.share.redrive import Redriven, redrive
from tests.cli.compare import captured
from tests.cli.process import Ended
from tests.client.test_dead_letters import group_with, letters_topic, refuse
from tests.client.test_share_consumer import SETTINGS, polled, produce
from tests.live import Server

pytestmark = pytest.mark.xdist_group("python-shares")
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose operator has raised share.version to 2."""
    settings = {**SETTINGS, "transaction.state.log.num.partitions": 1}
    with Server(tmp_path_factory.mktemp("queue-tools") / "data", settings=settings) as server:
        with ottla.Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.update_features({"share.version": 2})
        yield server.bootstrap


@pytest.fixture
def name() -> str:
    return f"jobs-{next(numbers)}"


def said(bootstrap: str, line: str) -> Ended:
    """One command inside this process."""
    return Ended(*captured(lambda: run([*line.split(), "-b", bootstrap])))


def shown(bootstrap: str, line: str) -> Any:
    ended = said(bootstrap, f"{line} --json")
    assert ended.code == 0, ended
    return json.loads(ended.out)


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with ShareConsumer[Any, bytes](topic, bootstrap_servers=bootstrap, group_id=topic) as reader:
        return sorted(each.value for each in polled(reader, count))


def test_a_queue_and_its_dead_messages(bootstrap: str, name: str) -> None:
    """What waits and what is dead is counted; a dead message goes back once, with its headers."""
    with Queue[bytes, bytes](name, bootstrap_servers=bootstrap) as queue:
        for number in range(4):
            queue.put(b"%d" % number, headers=[("by", b"me")])
        for _ in range(2):
            queue.dead(queue.get(30), "no such picture")
        queue.done(queue.get(30))
        [row] = shown(bootstrap, f"queue status {name}")
        assert (row["group"], row["waiting"], row["dead"]) == (f"queue-{name}", 1, 2)
        assert (row["state"], row["members"]) == ("Stable", 1)
        assert row["dead_letters"] == f"{name}.dead"
        dry = said(bootstrap, f"queue redrive {name}")
        assert dry.out == f"would send back 2 to {name}\n"
        assert "nothing was changed" in dry.errors
        assert shown(bootstrap, f"queue redrive {name} --count 1 --execute")["sent"] == 1
        assert shown(bootstrap, f"queue redrive {name} --execute")["sent"] == 1
        assert shown(bootstrap, f"queue redrive {name} --execute")["sent"] == 0
        found = [queue.get(30) for _ in range(3)]
        assert sorted(each.value for each in found)[:2] == [b"0", b"1"]
        assert all(each.headers == [("by", b"me")] for each in found)


def test_kafkas_dead_letters_go_back(bootstrap: str, name: str) -> None:
    """The record is taken from its old place, also where the letter has no copy of it."""
    group_with(bootstrap, name, topic_name=f"dlq.{name}")
    letters_topic(bootstrap, f"dlq.{name}")
    produce(bootstrap, name, 4)
    refuse(bootstrap, name, 4, AcknowledgeType.REJECT)
    [row] = shown(bootstrap, f"queue status {name} --group {name}")
    assert (row["dead"], row["dead_letters"]) == (4, f"dlq.{name}")
    line = f"queue redrive {name} --from dlq.{name} --execute"
    assert shown(bootstrap, line) == {"sent": 4, "gone": 0, "unknown": 0}
    assert values(bootstrap, name, 4) == [b"0", b"1", b"2", b"3"]


def test_what_cannot_go_back(bootstrap: str, name: str) -> None:
    """A record that no log has any more, and what is no letter at all, are counted and left."""
    group_with(bootstrap, name, topic_name=f"dlq.{name}")
    letters_topic(bootstrap, f"dlq.{name}")
    produce(bootstrap, name, 2)
    refuse(bootstrap, name, 2, AcknowledgeType.REJECT)
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(f"dlq.{name}", b"a note").get(30)
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({ottla.TopicPartition(name, 0): -1})
    found = redrive(f"dlq.{name}", bootstrap_servers=bootstrap)
    assert found == Redriven(sent=1, gone=1, unknown=1)
    assert values(bootstrap, name, 1) == [b"1"]


def test_a_failure_says_what_to_try(bootstrap: str, name: str) -> None:
    """No such queue, no such group, no letters."""
    assert said(bootstrap, f"queue status {name}").said("no share group processes", "queue status")
    assert said(bootstrap, f"queue status --group {name}").said("there is no share group", "status")
    assert said(bootstrap, f"queue redrive {name}").said(f"no topic '{name}.dead'", "--from TOPIC")
    assert f"{name}" not in said(bootstrap, "queue status").out
