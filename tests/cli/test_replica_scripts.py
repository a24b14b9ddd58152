"""Tools that look at replicas and leaders, on a cluster of three brokers of which one dies.

The scripts are compared with Apache's own on the same cluster. `x` in a topic's name is `a` for
Apache's and `o` for ours: elections change what they are about.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cli.main import run
from ottla.client.admin import Admin, ElectionType, NewTopic
from ottla.client.errors import ElectionNotNeededError, PreferredLeaderNotAvailableError
from ottla.client.producer import Producer
from ottla.client.structs import TopicPartition
from ottla.testing import Cluster
from tests.apache import jars, java
from tests.cli.apache_tools import TOOLS, Answer, ApacheTools
from tests.cli.compare import captured, kafka_script
from tests.cli.test_kafka_scripts import normal
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("tools")

TOPICS = "topics.sh --bootstrap-server $B --describe --topic own-{x},spare-{x},config-{x} --"
ELECTION = "leader-election.sh --bootstrap-server $B --election-type "
LOG_DIRS = "log-dirs.sh --bootstrap-server $B --describe --topic-list own-{x},spare-{x},config-{x}"
NAMES = [f"{stem}-{x}" for stem in ("own", "spare", "config") for x in "ao"]
DEAD = (
    f"{TOPICS}under-replicated-partitions",
    f"{TOPICS}under-min-isr-partitions",
    f"{TOPICS}at-min-isr-partitions",
    f"{TOPICS}unavailable-partitions",
    f"{TOPICS}if-exists",
    f"{ELECTION}preferred --topic own-{{x}} --partition 0",
    f"{ELECTION}preferred --topic own-{{x}} --partition 1",
    f"{ELECTION}preferred --topic spare-{{x}} --partition 0",
    f"{ELECTION}unclean --topic config-{{x}} --partition 0",
    f"{ELECTION}unclean --topic own-{{x}} --partition 0",
    LOG_DIRS,
    f"{LOG_DIRS} --broker-list $V",
)
ALIVE = (
    f"{TOPICS}under-replicated-partitions",
    f"{TOPICS}at-min-isr-partitions",
    f"{ELECTION}preferred --path-to-json-file $T/own-{{x}}.json",
    f"{ELECTION}preferred --path-to-json-file $T/own-{{x}}.json",
    f"{TOPICS}unavailable-partitions",
    f"{TOPICS}if-exists",
    f"{LOG_DIRS} --broker-list $V",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; those that are killed come back."""
    folder = tmp_path_factory.mktemp("three")
    options = {"replica_fetch_backoff_ms": 100, "replica_lag_time_max_ms": 120_000}  # busy machines
    with Cluster(directory=folder / "cluster", **options) as started:
        yield started


@pytest.fixture(scope="module")
def victim(cluster: Cluster) -> int:
    """A broker that is not the controller, and leads the topics' first partitions."""
    found = next(each for each in cluster.node_ids if each != cluster.controller())
    one, two = (each for each in cluster.node_ids if each != found)
    places = {"own": [[found, one, two], [two, found, one]], "spare": [[found, one]]}
    places["config"] = [[found]]
    with cluster.admin() as admin:
        admin.create_topics(
            [
                NewTopic(f"{stem}-{x}", replica_assignments=dict(enumerate(brokers)))
                for x in "ao"
                for stem, brokers in places.items()
            ]
        )
        admin.create_topics([NewTopic("checked", 2)], wait_for_metadata=True)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(100):
            producer.send("checked", b"%d" % number, partition=number % 2).get(60)
    return found


def line_for(line: str, x: str, cluster: Cluster, victim: int) -> tuple[str, list[str]]:
    words = {"$B": cluster.bootstrap_servers, "$V": str(victim), "$T": str(cluster.directory)}
    for name, value in words.items():
        line = line.replace(name, value)
    tool, *rest = line.replace("{x}", x).split()
    return f"kafka-{tool}", rest


def compared(lines: tuple[str, ...], cluster: Cluster, victim: int, tools: ApacheTools) -> None:
    different = []
    for line in lines:
        theirs = tools.run(*expand(line_for(line, "a", cluster, victim)))
        ours = kafka_script(*expand(line_for(line, "o", cluster, victim)))
        expected, found = comparable(theirs), comparable(ours)
        if min(theirs.code, 1) != ours.code or expected != found:
            different.append(
                f"{line}\n  exit {theirs.code} and {ours.code}\n  theirs: {expected}\n"
                f"  ours:   {found}\n  {theirs.errors[:300]!r}\n  {ours.errors[:300]!r}"
            )
    assert not different, "\n".join(different)


def expand(call: tuple[str, list[str]]) -> list[str]:
    return [call[0], *call[1]]


def comparable(answer: Answer) -> list[str]:
    """Lines whose lists of partitions are in order, and where topics have one name."""

    def ordered(match: re.Match[str]) -> str:
        return match[1] + ", ".join(sorted(match[2].split(", ")))

    lines = [re.sub(r"(own|spare|config)-[ao]", r"\1-X", line) for line in normal(answer.out)]
    return sorted(re.sub(r"(for partitions )(.*)", ordered, line) for line in lines)


@pytest.mark.apache
def test_scripts_tell_of_a_dead_broker_as_kafkas_do(
    cluster: Cluster, victim: int, apache_tools: ApacheTools
) -> None:
    """Reports, elections and directories with a broker down, and after it is back, are Kafka's."""
    for x in "ao":
        named = ((f"own-{x}", 0), (f"own-{x}", 1), (f"spare-{x}", 0), (f"config-{x}", 0))
        plan = {"partitions": [{"topic": topic, "partition": index} for topic, index in named]}
        (cluster.directory / f"own-{x}.json").write_text(json.dumps(plan))
    cluster.kill(victim)
    with cluster.admin() as admin:
        eventually(lambda: all(gone(admin, name, victim) for name in NAMES), "it is fenced")
    compared(DEAD, cluster, victim, apache_tools)
    cluster.restart(victim)
    for name in NAMES:
        cluster.wait_for_isr(name)
    compared(ALIVE, cluster, victim, apache_tools)
    for x in "ao":
        assert cluster.leader(f"own-{x}", 0) == victim


def gone(admin: Admin, topic: str, broker: int) -> bool:
    (found,) = admin.describe_topics([topic])
    return all(broker not in each["isr_nodes"] for each in found["partitions"]) and all(
        broker != each["leader_id"] for each in found["partitions"]
    )


def ottla(cluster: Cluster, line: str) -> Answer:
    return Answer(*captured(lambda: run([*line.split(), "-b", cluster.bootstrap_servers])))


def rows(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer.out)
    return found


def test_commands_tell_of_a_dead_broker(cluster: Cluster, victim: int) -> None:
    """`ottla topics describe`, `elect` and `verify`, and the admin, with a broker down and up."""
    cluster.kill(victim)
    here = TopicPartition("own-o", 0)
    with cluster.admin() as admin:
        eventually(lambda: gone(admin, "own-o", victim), "it is fenced")
        with pytest.raises(PreferredLeaderNotAvailableError):
            admin.elect_leaders("preferred", [here])
        found = admin.elect_leaders(ElectionType.UNCLEAN, {"own-o": [0]})
        assert isinstance(found[here], ElectionNotNeededError)
    for report, names in {
        "under-replicated": ["config-o", "own-o", "spare-o"],
        "at-min-isr": ["own-o"],
        "under-min-isr": ["config-o", "spare-o"],
        "unavailable": ["config-o"],
    }.items():
        found = ottla(cluster, f"topics describe own-o spare-o config-o --{report} --json")
        assert [each["name"] for each in rows(found)] == names
    failed = ottla(cluster, "topics elect own-o -p 0")
    assert failed.code == 1
    assert "1 of 1 partitions could not be given a leader" in failed.errors
    verified = ottla(cluster, "topics verify checked")
    assert verified.code == 1
    assert f"broker {victim} is not alive" in verified.out
    cluster.restart(victim)
    for name in NAMES:
        cluster.wait_for_isr(name)
    elected = rows(ottla(cluster, "topics elect own-o --json"))
    assert {each["partition"]: each["leader"] for each in elected}[0] == victim
    listed = rows(ottla(cluster, "cluster log-dirs --topic own-o --partitions --json"))
    assert sorted((each["broker"], each["partition"]) for each in listed) == [
        (broker, partition) for broker in cluster.node_ids for partition in range(2)
    ]
    listed = rows(ottla(cluster, f"cluster log-dirs --topic config-o --broker {victim} --json"))
    assert [each["partitions"] for each in listed] == [1]


def test_replicas_that_differ_are_found(cluster: Cluster, victim: int) -> None:
    """A byte that changes in one replica's file shows in both tools that compare replicas."""
    for partition in range(2):
        cluster.wait_for_isr("checked", partition)
    (first, second) = rows(ottla(cluster, "topics verify checked --json"))
    assert (first["result"], first["to_offset"], first["batches"]) == ("same", 50, 50)
    assert second["result"] == "same"
    with started_script(cluster, "checked") as process:
        assert process.stdout is not None
        assert "verification process is started" in process.stdout.readline()
        found = process.stdout.readline()
        assert re.search(
            r"max lag is 0 for partition checked-[01] at offset 50 among 2 partitions", found
        )
        process.kill()
    broker = next(b for b in cluster.node_ids if b != cluster.leader("checked", 1))
    (segment,) = (cluster.directory / f"broker-{broker}" / "checked-1").glob("*.log")
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(len(content) - 2)
        file.write(bytes([content[-2] ^ 1]))
    broken = ottla(cluster, "topics verify checked")
    assert broken.code == 1
    assert "differ in the batch that ends at offset 49" in broken.out
    with started_script(cluster, "checked") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert (
            "partition checked-1 has unmatched checksum at offset 49" in process.stdout.readline()
        )
        process.kill()
    with segment.open("r+b") as file:
        file.seek(len(content) - 2)
        file.write(content[-2:-1])


def started_script(cluster: Cluster, topics: str) -> subprocess.Popen[str]:
    """kafka-replica-verification.sh, which goes on until it is ended."""
    code = "from ottla.cli.kafka_scripts.replica_verification import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *verification(cluster, topics)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def verification(cluster: Cluster, topics: str) -> list[str]:
    """Arguments of kafka-replica-verification.sh."""
    return (
        f"--broker-list {cluster.bootstrap_servers} --topics-include {topics} --time -2 "
        "--fetch-size 1048576 --max-wait-ms 100 --report-interval-ms 1"
    ).split()


@pytest.mark.apache
def test_the_verification_script_reports_as_kafkas(cluster: Cluster, victim: int) -> None:
    """Both say the same of the same replicas, but for the time."""
    for partition in range(2):
        cluster.wait_for_isr("checked", partition)
    tool = TOOLS["kafka-replica-verification.sh"]
    command = ["java", *java.QUICK_START, "-cp", jars.classpath(), tool]
    theirs = subprocess.Popen(
        [*command, *verification(cluster, "spare-o|checked")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    ours = started_script(cluster, "spare-o|checked")
    said = []
    for process in (theirs, ours):
        with process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            process.kill()
        lines = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME", line) for line in lines]
        said.append([re.sub(r"(partition )\S+( at offset )\d+", r"\1P\2N", line) for line in lines])
    assert said[0] == said[1]
    assert said[0][1] == "TIME: max lag is 0 for partition P at offset N among 3 partitions\n"
