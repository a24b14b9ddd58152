"""Every option that Apache Kafka's tools have is known here, and tested or named as missing."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.apache import java
from tests.cli.apache_tools import TOOLS, ApacheTools
from tests.cli.compare import MODULES, kafka_script

HERE = Path(__file__).parent
LIST = HERE / "cases" / "apache_options.lst"
# Tools that print their options for --help without ending the JVM.
SPEAK = (
    "kafka-topics.sh", "kafka-console-producer.sh", "kafka-console-consumer.sh",
    "kafka-consumer-groups.sh", "kafka-configs.sh", "kafka-get-offsets.sh",
    "kafka-delete-records.sh", "kafka-dump-log.sh", "kafka-log-dirs.sh",
    "kafka-leader-election.sh", "kafka-replica-verification.sh",
    "kafka-broker-api-versions.sh", "kafka-groups.sh", "kafka-consumer-perf-test.sh",
    "kafka-reassign-partitions.sh", "kafka-share-groups.sh", "kafka-console-share-consumer.sh",
    "kafka-share-consumer-perf-test.sh",
)  # fmt: skip


def listed() -> dict[str, dict[str, bool]]:
    """Tool -> option -> whether it is there."""
    found: dict[str, dict[str, bool]] = {}
    tool = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            continue
        head, colon, rest = line.partition(":")
        if colon:
            tool = head
            found[tool] = {}
        words = (rest if colon else line).split()
        found[tool] |= {word.removeprefix("!"): not word.startswith("!") for word in words}
    return found


def declared(tool: str) -> dict[str, bool]:
    """Option -> whether our script has it."""
    module = import_module(f"ottla.cli.kafka_scripts.{MODULES[tool]}")
    if hasattr(module, "PARSER"):
        return {name: not option.skipped for name, option in module.PARSER.by_name.items()}
    found: dict[str, bool] = {}
    for name in module.TOOL.commands:
        for option in module.TOOL.parser(name).options:
            found[option.name] = found.get(option.name, False) or not option.skipped
    return found


@pytest.mark.parametrize("tool", listed())
def test_an_option_of_kafkas_is_understood_or_refused_with_a_reason(tool: str) -> None:
    """Each of Apache's options is declared, as there or as left out, as the list says."""
    ours = declared(tool)
    assert {name: ours.get(name) for name in listed()[tool]} == listed()[tool]


def strings(node: ast.AST) -> list[str]:
    return [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def used() -> dict[str, str]:
    """Tool -> every command line of these tests, as text.

    In a file of cases a line is one. In a test, a string that begins with a tool's name is one; any
    other string, also by the name of a constant, counts for the tools that its function names.
    """
    found: dict[str, list[str]] = {tool: [] for tool in MODULES}
    for file in HERE.rglob("*.txt"):
        for line in file.read_text().splitlines():
            if line.partition(" ")[0] in found:
                found[line.partition(" ")[0]].append(line)
    for file in HERE.glob("test_*.py"):
        if file.name == Path(__file__).name:
            continue
        constants: dict[str, list[str]] = {}
        for node in ast.parse(file.read_text()).body:
            texts = strings(node)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                constants[node.targets[0].id] = texts
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            texts += [text for name in names for text in constants.get(name, ())]
            named = [tool for tool in found if any(tool in text for text in texts)]
            for text in texts:
                begins = text.partition(" ")[0]
                for tool in [begins] if begins in found else named:
                    found[tool].append(text)
    return {tool: "\n".join(texts) for tool, texts in found.items()}


@pytest.mark.parametrize("tool", listed())
def test_an_option_that_is_there_is_tested(tool: str) -> None:
    """Each option that is not left out stands in a command line of these tests."""
    text = used()[tool]
    untested = [
        name
        for name, there in listed()[tool].items()
        if there and not re.search(rf"--{re.escape(name)}(?![\w.-])", text)
    ]
    assert not untested, f"{tool}: no test uses {untested}"


@pytest.mark.parametrize("tool", listed())
def test_an_option_that_is_not_there_is_named(tool: str) -> None:
    """Each option that is left out stands in a line of SKIPPED.md with its tool, and is refused
    with a reason."""
    bullets = re.split(r"\n(?=- )", (HERE.parents[1] / "SKIPPED.md").read_text())
    for name, there in listed()[tool].items():
        if not there:
            assert any(tool in each and f"--{name}" in each for each in bullets), name
            words = [f"--{name}", "x"]
            module = import_module(f"ottla.cli.kafka_scripts.{MODULES[tool]}")
            if not hasattr(module, "PARSER"):
                words = [
                    next(
                        command
                        for command in module.TOOL.commands
                        if any(o.name == name for o in module.TOOL.parser(command).options)
                    ),
                    *words,
                ]
            answer = kafka_script(tool, *words)
            assert answer.code != 0
            assert f"--{name}" in answer.errors
            assert answer.errors.count("\n") >= 1


@pytest.mark.apache
@pytest.mark.xdist_group("tools")
@pytest.mark.parametrize("tool", SPEAK)
def test_the_list_is_apaches(tool: str, apache_tools: ApacheTools) -> None:
    """The list has the options that Apache's --help shows, no more and no fewer."""
    answer = apache_tools.run(tool, "--help")
    names = set(re.findall(r"^(?:\* )?--([a-z][a-z.-]*)", answer.out + answer.errors, re.MULTILINE))
    assert names - {"help", "version"} == set(listed()[tool])


@pytest.mark.apache
@pytest.mark.xdist_group("tools")
@pytest.mark.parametrize("tool", ["kafka-transactions.sh", "kafka-features.sh"])
def test_the_list_is_apaches_for_every_command(tool: str, apache_tools: ApacheTools) -> None:
    """The same for tools with commands, each of which has a help of its own."""
    module = import_module(f"ottla.cli.kafka_scripts.{MODULES[tool]}")
    answers = [apache_tools.run(tool, "--help")]
    answers += [apache_tools.run(tool, name, "--help") for name in module.TOOL.commands]
    text = "\n".join(answer.out + answer.errors for answer in answers)
    names = set(re.findall(r"(?<![\w-])--([a-zA-Z][a-zA-Z.-]*)", text))
    assert names - {"help", "version"} == set(listed()[tool])


@pytest.mark.apache
@pytest.mark.xdist_group("tools")
@pytest.mark.parametrize(
    ("tool", "commands"),
    [
        ("kafka-cluster.sh", ["cluster-id", "unregister", "list-endpoints"]),
        ("kafka-storage.sh", ["format"]),
        ("kafka-producer-perf-test.sh", []),
    ],
)
def test_the_list_is_apaches_where_help_ends_the_jvm(
    tool: str, commands: list[str], apache_tools: ApacheTools
) -> None:
    """The same for those that cannot share a JVM."""
    text = "\n".join(
        java.said(TOOLS[tool], *each, "--help") for each in ([], *([name] for name in commands))
    )
    text = re.sub(r"-\n +", "-", text)  # a name may be cut at the end of a line
    names = set(re.findall(r"(?<![\w-])--([a-z][a-z.-]*[a-z])", text))
    assert names - {"help", "version"} == set(listed()[tool])


@pytest.mark.parametrize("tool", [*listed()])
def test_help_names_every_option(tool: str) -> None:
    """--help goes to standard output with exit code 0 and has a line for each option or command."""
    module = import_module(f"ottla.cli.kafka_scripts.{MODULES[tool]}")
    answer = kafka_script(tool, "--help")
    assert answer.code == 0
    wanted = (
        [f"--{name}" for name in listed()[tool]]
        if hasattr(module, "PARSER")
        else list(module.TOOL.commands)
    )
    assert [name for name in wanted if name not in answer.out] == []


@pytest.mark.parametrize(
    ("tool", "words", "again"),
    [
        ("kafka-topics.sh", "--zookeeper 127.0.0.1:1 --list", "--list"),
        ("kafka-topics.sh", "--zookeeper=[::1]:1,127.0.0.1:1/k --describe --topic t",
         "--describe --topic t"),
        ("kafka-configs.sh", "--zookeeper 127.0.0.1:1 --describe --topic t",
         "--describe --topic t"),
        ("kafka-console-consumer.sh", "--zookeeper 127.0.0.1:1 --topic t", "--topic t"),
        ("kafka-consumer-groups.sh", "--zookeeper 127.0.0.1:1 --list", "--list"),
    ],
)  # fmt: skip
def test_without_zookeeper_todays_option_is_shown(tool: str, words: str, again: str) -> None:
    """Nothing answers where --zookeeper points: the same command with --bootstrap-server helps."""
    answer = kafka_script(tool, *words.split())
    assert answer.code == 1
    assert f"Try: {tool} --bootstrap-server localhost:9092 {again}" in answer.errors


def test_a_misspelt_option_is_put_right() -> None:
    """An unknown option is named, with the one that was meant."""
    answer = kafka_script("kafka-topics.sh", "--bootstrap-servr", "x", "--list")
    assert answer.code == 1
    assert "there is no option --bootstrap-servr; did you mean --bootstrap-server?" in answer.errors
    assert "Try: kafka-topics.sh --help" in answer.errors
