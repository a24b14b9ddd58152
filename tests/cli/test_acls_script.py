"""kafka-acls.sh against Apache Kafka's own tool: the same command lines, one broker with ACLs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.apache_tools import ApacheTools
from tests.cli.compare import kafka_script
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("tools")]
TOOL = "kafka-acls.sh"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# In this order; `{x}` is `xa` for Apache's tool and `xo` for ours, and `$FILE` a file of options.
LINES = """
--list
--list --topic nothing --command-config $FILE
--add --topic {x}-one --allow-principal User:alice
--add --topic {x}-one --topic {x}-two --allow-principal User:eve --operation Read --operation write
--add --topic {x}-one --deny-principal User:bob --deny-host 10.0.0.1 --operation Describe
--add --topic {x}-one --allow-principal User:* --allow-host 10.0.0.1 --allow-host 10.0.0.2
--add --cluster --allow-principal User:{x} --operation ClusterAction --operation Alter
--add --group {x}-g --allow-principal User:{x} --operation READ
--add --transactional-id {x}-x --allow-principal User:{x} --operation TwoPhaseCommit
--add --delegation-token {x}-token --allow-principal User:{x} --operation Describe
--add --user-principal User:{x} --allow-principal User:{x} --operation CreateTokens
--add --topic {x}-p --resource-pattern-type prefixed --allow-principal User:{x} --operation all
--add --producer --topic {x}-made --allow-principal User:{x}
--add --producer --idempotent --topic {x}-made --transactional-id {x}-i --allow-principal User:{x}
--add --consumer --topic {x}-made --group {x}-made --allow-principal User:{x}
--add --producer --consumer --topic {x}-both --group {x}-both --allow-principal User:{x}
--list --topic {x}-one
--list --topic {x}-made --group {x}-made --transactional-id {x}-i
--list --cluster --principal User:{x}
--list --topic {x}-one --principal User:alice --principal User:nobody
--list --topic {x}-p --resource-pattern-type prefixed
--list --topic {x}-pqr --resource-pattern-type match
--list --topic {x}-p --resource-pattern-type any
--list --delegation-token {x}-token
--list --user-principal User:{x}
--remove --topic {x}-two --allow-principal User:eve --operation Read --force
--remove --topic {x}-two --force
--remove --topic {x}-pqr --resource-pattern-type match --force
--remove --consumer --topic {x}-made --group {x}-made --allow-principal User:{x} --force
--list --topic {x}-made --group {x}-made
--list --topic {x}-two --topic {x}-p --resource-pattern-type any
--add --topic {x}-one
--add --topic {x}-one --allow-principal alice
--add --topic {x}-one --allow-principal User:{x} --operation nonsense
--add --group {x}-g --allow-principal User:{x} --operation Write
--add --topic {x}-one --allow-principal User:{x} --resource-pattern-type match
--add --topic {x}-one --allow-principal User:{x} --resource-pattern-type nonsense
--add --allow-principal User:{x} --operation Read
--add --list --topic {x}-one
--list --allow-principal User:{x}
--list --producer
--add --producer --allow-principal User:{x}
--add --producer --topic {x}-one --operation Read --allow-principal User:{x}
--add --consumer --topic {x}-one --allow-principal User:{x}
--add --consumer --topic {x}-one --group g --cluster --allow-principal User:{x}
--add --idempotent --topic {x}-one --allow-principal User:{x}
--add --topic {x}-one --principal User:{x}
--topic {x}-one
""".strip().splitlines()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with Server(tmp_path_factory.mktemp("acls") / "data", settings=settings) as server:
        yield server.bootstrap


def normal(text: str) -> list[str]:
    """In any order: Java's sets have none."""
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def test_the_same_is_said_and_done(
    apache_tools: ApacheTools, bootstrap: str, tmp_path: Path
) -> None:
    """Exit code and output of each line; what refuses a command line is in our own words."""
    different = []
    options = tmp_path / "client.properties"
    options.write_text("client.id=acls\n")
    for line in (each.replace("$FILE", str(options)) for each in LINES):
        theirs, ours = (
            ["--bootstrap-server", bootstrap, *shlex.split(line.replace("{x}", x))]
            for x in ("xa", "xo")
        )
        expected = apache_tools.run(TOOL, *theirs)
        found = kafka_script(TOOL, *ours)
        if expected.code:
            same = found.code == expected.code
        else:
            said = normal(expected.out.replace("xa", "xo"))
            same = (found.code, normal(found.out)) == (0, said)
        if not same:
            different.append(f"{line}\n  Apache: {expected}\n  ours:   {found}")
    assert not different, "\n".join(different)


def test_a_removal_is_asked_for(bootstrap: str) -> None:
    """Without --force: only `y` removes anything."""
    brokers = ("--bootstrap-server", bootstrap)
    topic = ("--topic", "asked")
    kafka_script(TOOL, *brokers, "--add", *topic, "--allow-principal", "User:a")
    for answer, left in (("n\n", True), ("", True), ("y\n", False)):
        removed = kafka_script(TOOL, *brokers, "--remove", *topic, text=answer)
        assert removed.code == 0
        assert "Are you sure you want to delete all ACLs for resource filter" in removed.out
        shown = kafka_script(TOOL, *brokers, "--list", *topic).out
        assert ("principal=User:a" in shown) is left
