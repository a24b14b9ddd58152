"""`--command-config FILE`: every tool reaches a broker of SASL_SSL by a file of Kafka's properties.

The tools run in this process, one after the other, against one broker.
"""

from __future__ import annotations

import io
import json
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest

import ottla
from ottla.cli.kafka_scripts.options import parse_properties
from ottla.cli.kafka_scripts.running import guarded
from ottla.cli.main import COMMANDS, run
from tests.compat.secured import EveryListener

SEEDED = "seeded"
ROOT = Path(__file__).resolve().parents[2]


class Secured:
    """The broker, the file of options, and a topic with a record."""

    def __init__(self, folder: Path, broker: EveryListener) -> None:
        way = broker.way("SASL_SSL", "PLAIN")
        self.servers = way.servers
        self.file = folder / "client.properties"
        lines = [f"{name}={value}\n" for name, value in way.properties().items()]
        # Of Java alone; tools do not stop for it.
        self.file.write_text("".join([*lines, "ssl.protocol=TLSv1.3\n"]))
        self.offsets = folder / "offsets.json"
        place = {"topic": SEEDED, "partition": 0, "offset": 0}
        self.offsets.write_text(json.dumps({"partitions": [place], "version": 1}))
        self.plan = folder / "plan.json"
        moved = {"topic": SEEDED, "partition": 0, "replicas": [1]}
        self.plan.write_text(json.dumps({"partitions": [moved], "version": 1}))
        with ottla.Producer(way.properties()) as producer:
            producer.send(SEEDED, b"a record", partition=0).get(60)

    def filled(self, words: str) -> list[str]:
        values = {
            "B": f"--bootstrap-server {self.servers}",
            "S": self.servers,
            "F": self.file,
            "C": f"--command-config {self.file}",
            "OFFSETS": self.offsets,
            "PLAN": self.plan,
        }
        return words.format(**values).split()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with EveryListener(tmp_path_factory.mktemp("secured")) as running:
        yield Secured(tmp_path_factory.mktemp("tools"), running)


SCRIPTS = {
    "kafka-acls.sh": "{B} {C} --list",
    "kafka-delegation-tokens.sh": "{B} {C} --describe",
    "kafka-topics.sh": "{B} {C} --describe --topic seeded",
    "kafka-console-producer.sh": "{B} {C} --topic seeded",
    "kafka-console-consumer.sh": "{B} {C} --topic seeded --from-beginning --max-messages 1",
    "kafka-consumer-groups.sh": "{B} {C} --list",
    "kafka-configs.sh": "{B} {C} --describe --entity-type topics --entity-name seeded",
    "kafka-get-offsets.sh": "{B} {C} --topic seeded",
    "kafka-delete-records.sh": "{B} {C} --offset-json-file {OFFSETS}",
    "kafka-log-dirs.sh": "{B} {C} --describe",
    "kafka-leader-election.sh": "{B} --admin.config {F} --election-type preferred "
    "--all-topic-partitions",
    "kafka-reassign-partitions.sh": "{B} {C} --list",
    "kafka-broker-api-versions.sh": "{B} {C}",
    "kafka-transactions.sh": "{B} {C} list",
    "kafka-share-groups.sh": "{B} {C} --list",
    "kafka-console-share-consumer.sh": "{B} {C} --topic seeded --timeout-ms 1",
    "kafka-share-consumer-perf-test.sh": "{B} {C} --topic seeded --num-records 1 --timeout 1",
    "kafka-groups.sh": "{B} {C} --list",
    "kafka-features.sh": "{B} {C} describe",
    "kafka-cluster.sh": "cluster-id {B} --config {F}",
    "kafka-producer-perf-test.sh": "{B} --producer.config {F} --topic perf --num-records 5 "
    "--record-size 10 --throughput -1",
    "kafka-consumer-perf-test.sh": "{B} {C} --topic seeded --messages 1 --timeout 20000",
    "kafka-e2e-latency.sh": "{B} {C} --topic perf --num-records 2 --record-size 10 "
    "--producer-acks all",
}
# Apache's have no such option either, or ask no broker that has TLS.
WITHOUT = {
    "kafka-dump-log.sh", "kafka-replica-verification.sh", "kafka-storage.sh",
    "kafka-server-start.sh", "kafka-server-stop.sh", "zookeeper-server-start.sh",
    "zookeeper-server-stop.sh", "zookeeper-shell.sh", "ke.sh", "flume-ng",
}  # fmt: skip


def scripts() -> dict[str, ModuleType]:
    """All that are installed, by the table in pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return {
        name: import_module(target.partition(":")[0])
        for name, target in table.items()
        if name != "ottla" and name not in WITHOUT
    }


@pytest.mark.parametrize("name", sorted(scripts()))
def test_a_script_takes_the_file(
    secured: Secured,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ends with success: the broker has answered. Some say nothing then."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a line\n")))
    ended = guarded(scripts()[name].run, secured.filled(SCRIPTS[name]))
    said = capsys.readouterr()
    if name == "kafka-acls.sh":  # as the broker has none
        assert "No Authorizer is configured" in said.out + said.err
        return
    if name == "kafka-delegation-tokens.sh":  # as the broker has no key for them
        assert "Delegation tokens are not switched on" in said.out + said.err
        return
    assert ended == 0, said.err
    assert "no broker" not in said.err


OTTLA = {
    "topics list": "",
    "topics create": "made",
    "topics describe": "seeded",
    "topics alter": "made --partitions 3",
    "topics elect": "seeded",
    "topics verify": "seeded",
    "topics delete": "made --yes",
    "produce": "seeded value",
    "consume": "seeded --from beginning --count 1 --group a-group",
    "groups list": "",
    "groups describe": "a-group",
    "configs describe": "topic seeded",
    "configs set": "topic seeded retention.ms=100000000",
    "configs unset": "topic seeded retention.ms",
    "offsets list": "seeded",
    "offsets reset": "a-group --topic seeded --to beginning --execute",
    "offsets delete": "a-group --topic seeded",
    "groups delete": "a-group",
    "records delete": "seeded --before 0",
    "reassignments list": "",
    "reassignments plan": "seeded --brokers 1",
    "reassignments start": "{PLAN}",
    "reassignments status": "{PLAN}",
    "reassignments cancel": "{PLAN}",
    "transactions list": "",
    "transactions describe": "nobody",
    "transactions producers": "seeded 0",
    "transactions hanging": "",
    "transactions abort": "seeded 0 0",
    "queue status": "",
    "queue redrive": "seeded --from seeded",
    "cluster describe": "",
    "cluster features": "",
    "cluster versions": "",
    "cluster log-dirs": "",
    "cluster status": "",
    "cluster why": "seeded-0",
    "perf produce": "perf --count 5 --size 10",
    "perf consume": "seeded --count 1",
    "perf latency": "perf --count 2 --size 10",
}
ELSEWHERE = {"console", "pipeline check", "pipeline run", "pipeline status"}  # tested there
OF_A_DIRECTORY = {"cluster replace", "cluster restart"}


def takers() -> Iterator[str]:
    """The commands with the option."""
    for name, (module, attribute) in COMMANDS.items():
        found = getattr(import_module(module), attribute)
        commands = found.commands if isinstance(found, click.Group) else {"": found}
        for sub, command in commands.items():
            if any(each.name == "command_config" for each in command.params):
                yield f"{name} {sub}".strip()


# There is nothing that they could show or end, which they say: the broker has answered.
NOTHING_THERE = {
    "transactions describe": "nobody",
    "transactions abort": "transaction",
}


def test_commands_take_the_file(secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is answered; in this order, for some need what others made."""
    problems = []
    for name, words in OTTLA.items():
        code = run([*name.split(), *secured.filled(words + " {B} {C}")])
        said = capsys.readouterr()
        expected = NOTHING_THERE.get(name)
        if code != (0 if expected is None else 1) or (expected or "") not in said.err:
            problems.append(f"{name}: {code}: {said.out} {said.err}")
    assert not problems, "\n".join(problems)


def test_all_commands_are_here() -> None:
    """Each that takes the file is tried below."""
    assert set(takers()) == set(OTTLA) | ELSEWHERE | OF_A_DIRECTORY


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            r"a=-----BEGIN KEY-----\nMII\n-----END KEY-----",
            "-----BEGIN KEY-----\nMII\n-----END KEY-----",
        ),
        ("a=one \\\n   two", "one two"),
        (r"a=tab\tback\\slash \u00e4", "tab\tback\\slash ä"),
    ],
)
def test_escapes_of_java(text: str, value: str) -> None:
    """Line ends of a key in PEM, lines that go on, and characters by their numbers."""
    assert parse_properties(text) == {"a": value}
