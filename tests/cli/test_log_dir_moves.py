"""Moves between the directories of a broker, with the tools and the admin client, word for word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.log_dir_moves import MoveState
from ottla.cli.main import run
from ottla.client.admin import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ReplicaLogDirs,
)
from ottla.client.errors import LogDirNotFoundError, UnknownTopicOrPartitionError
from ottla.client.producer import Producer
from ottla.client.structs import TopicPartitionReplica
from tests.cli.compare import kafka_script
from tests.live import Server
from tests.waiting import eventually

REPLICA = TopicPartitionReplica("t", 0, 1)


class TwoDirectories(Server):
    """Another data directory beside the first."""

    def _command(self) -> list[str]:
        command = super()._command()
        command[command.index("--data-dir") + 1] += f",{self.data.parent}/two"
        return command


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with TwoDirectories(tmp_path / "one") as server:
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        yield server


def script(server: Server, plan: Path, *more: str) -> str:
    """What kafka-reassign-partitions.sh prints."""
    given = ["--bootstrap-server", server.bootstrap, "--reassignment-json-file", str(plan)]
    answer = kafka_script("kafka-reassign-partitions.sh", *given, *more)
    assert answer.code == 0, answer
    return answer.out


def test_a_plan_moves_a_replica_between_directories(server: Server, tmp_path: Path) -> None:
    """Throttled, looked at, cancelled, begun again, done: as Apache's tool says it (4.3.1)."""
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"
    with Producer(bootstrap_servers=server.bootstrap, acks=1) as producer:
        for _ in range(40):
            producer.send("t", b"x" * 50_000)
    plan = tmp_path / "plan.json"
    part = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [two]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    started = (
        "Successfully started partition reassignment for t-0\n"
        f"Successfully started moving log directory to {two} for replica t-0 with broker 1 \n"
    )
    said = script(server, plan, "--execute", "--replica-alter-log-dirs-throttle", "1000")
    assert said.endswith(f"The replica-alter-dir throttle limit was set to 1000 B/s\n{started}")
    assert f'"log_dirs":["{one}"]' in said
    status = "Status of partition reassignment:\nReassignment of partition t-0 is completed.\n"
    assert (
        script(server, plan, "--verify")
        == f"{status}Reassignment of replica t-0-1 is still in progress.\n"
    )
    cleared = (
        "Clearing broker-level throttles on broker 1\nClearing topic-level throttles on topic t\n"
    )
    assert script(server, plan, "--cancel") == (
        "None of the specified partition reassignments are active.\n"
        f"Successfully started moving log directory to {one} for replica t-0 with broker 1 \n"
        + cleared
    )
    assert script(server, plan, "--verify") == (
        f"{status}Partition t-0 on broker 1 is not being moved from log dir {one} to {two}.\n"
        + cleared
    )
    assert script(server, plan, "--execute").endswith(started)
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        moved = {REPLICA: ReplicaLogDirs(two, 0)}
        eventually(lambda: admin.describe_replica_log_dirs([REPLICA]) == moved, "it has moved")
        found = admin.alter_replica_log_dirs(
            {REPLICA: "/nowhere", ("t", 7, 1): one, ("t", 8, 1): one}
        )
    assert script(server, plan, "--verify") == (
        f"{status}Reassignment of replica t-0-1 completed successfully.\n" + cleared
    )
    assert found == {
        REPLICA: LogDirNotFoundError,
        TopicPartitionReplica("t", 7, 1): UnknownTopicOrPartitionError,
        TopicPartitionReplica("t", 8, 1): UnknownTopicOrPartitionError,
    }


def test_ottla_reassignments_tells_of_directories(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` says how far the copy is, `cancel` gives it up."""
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"
    with Producer(bootstrap_servers=server.bootstrap, acks=1) as producer:
        for _ in range(40):
            producer.send("t", b"x" * 50_000)
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", rate)])
    plan = tmp_path / "plan.json"
    part = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [two]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))

    def ottla(verb: str, *more: str) -> str:
        assert run(["reassignments", verb, str(plan), "-b", server.bootstrap, *more]) == 0
        return capsys.readouterr().out

    def state() -> str:
        (replica,) = json.loads(ottla("status", "--json"))["directories"]
        assert (replica["topic"], replica["broker"], replica["directory"]) == ("t", 1, two)
        return str(replica["state"])

    assert state() == f"stays in {one}"
    ottla("start")
    assert re.fullmatch(r"in progress, \d+ behind", state())
    assert re.search(rf"t +0 +1 +{two} +in progress, \d+ behind", ottla("status"))
    assert "cancelled: t-0-1" in ottla("cancel")
    assert state() == f"stays in {one}"
    assert "nothing is under way" in ottla("cancel")


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (
            ReplicaLogDirs(),
            "Partition t-0 cannot be found in any live log directory on broker 1.",
        ),
        (
            ReplicaLogDirs(None, -1, "/b", 4),
            (
                "Partition t-0 is not found in any live log dir on broker 1. There is likely an "
                "offline log directory on the broker."
            ),
        ),
        (
            ReplicaLogDirs("/a", 0, "/c", 4),
            "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.",
        ),
        (ReplicaLogDirs("/a", 0, "/b", 4), "Reassignment of replica t-0-1 is still in progress."),
        (ReplicaLogDirs("/b", 0), "Reassignment of replica t-0-1 completed successfully."),
        (
            ReplicaLogDirs("/a", 0),
            "Partition t-0 on broker 1 is not being moved from log dir /a to /b.",
        ),
    ],
)
def test_states_have_the_words_of_kafkas_tool(now: ReplicaLogDirs, words: str) -> None:
    """The words are those of Apache's tool, for each state of a move."""
    assert MoveState(REPLICA, "/b", now).words == words
