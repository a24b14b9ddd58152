"""Every script against Apache Kafka's own tool: the same command line, the same broker.

The command lines are in cases/*.txt. Exit code and standard output must agree, in any order of
lines; what is said on standard error is ours. `{x}` in a line is `a` for Apache and `o` for ours.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.apache_tools import ApacheTools
from tests.cli.compare import kafka_script
from tests.cli.state import State

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("tools")]
CASES = Path(__file__).with_name("cases")

# Where our words or our care differ on purpose.
ALLOWED = (
    (r"(errors\.\w+): .*", r"\1"),  # the wording of an error code is the wire's own
    (r"failed due to (?!The partitions|org\.).*", "failed due to"),
    (r"^(Error: )(The group id does not exist|There is no such group)\.$", r"\1no such group"),
    (r"(is invalid:) .*", r"\1"),  # a regular expression's error
    (r"(\t\d{13} +\t)\d+ +(\t.*\t)$", r"\1DURATION\2"),  # milliseconds that have passed
    (r"^4\.3\.1.*", "4.3.1"),
    # How long it took: times, rates and milliseconds of the share consumer's measures.
    (r"(\d{4}(-\d\d){2} (\d\d:){3}\d{3}, ){2}([\d.]+)(?:, [\d.]+){2}, (\d+), \d+$", r"\4, \5"),
)
# ShareConsumerPerformance gives its threads 100 ms beyond --timeout to end, and one poll of theirs
# takes 100 ms: on a busy machine Kafka's own tool fails with this where nothing is left to read.
RACE_OF_KAFKAS_OWN = "InterruptException: Timeout waiting for results from fetching records"
RACE_TRIES_MAX = 8
# Nagging is left to Kafka.
DEPRECATED = re.compile(r"(Option|Warning:) --\S+ (is|has been) deprecated")


def cases() -> list[tuple[str, str]]:
    found = [
        (line.split()[0], line)
        for file in sorted(CASES.glob("*.txt"))
        for line in file.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(found) > 200
    return found


TOOLS = sorted({tool for tool, _ in cases()})


def words_of(line: str, state: State, x: str) -> list[str]:
    for name, value in state.words.items():
        line = line.replace(name, value)
    return shlex.split(line.replace("{x}", x))[1:]


def normal(text: str) -> list[str]:
    """Lines that can be compared."""
    lines = []
    for line in text.replace("}{", "}\n{").splitlines():
        line = re.sub(r"\b(made\.|own-|spare-|config-|console-)[ao]\b", r"\1X", line)
        for pattern, replacement in ALLOWED:
            line = re.sub(pattern, replacement, line)
        if line.startswith("{"):
            line = json.dumps(canonical(json.loads(line)), sort_keys=True)
        elif "Configs: " in line:
            head, _, configs = line.partition("Configs: ")
            line = head + ",".join(sorted(configs.split(",")))
            line = re.sub(r"TopicId: \S+", "TopicId: ID", line) if "X" in line else line
        if line.strip() and not DEPRECATED.match(line):
            lines.append(line)
    return sorted(lines)


def canonical(value: object) -> object:
    if isinstance(value, dict):
        return {name: canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted((canonical(each) for each in value), key=lambda each: json.dumps(each))
    return value


@pytest.mark.parametrize("tool", TOOLS)
def test_a_script_answers_as_kafkas_own_tool(
    tool: str, state: State, apache_tools: ApacheTools
) -> None:
    """For each command line the exit code and the output are those of Apache Kafka's tool."""
    different = []
    for name, line in cases():
        if name != tool:
            continue
        for _ in range(RACE_TRIES_MAX):
            theirs = apache_tools.run(tool, *words_of(line, state, "a"))
            if RACE_OF_KAFKAS_OWN not in theirs.errors:
                break
        ours = kafka_script(tool, *words_of(line, state, "o"))
        expected, found = normal(theirs.out), normal(ours.out)
        if min(theirs.code, 1) != ours.code or expected != found:
            missing = [each for each in expected if each not in found]
            extra = [each for each in found if each not in expected]
            different.append(
                f"{line}\n  exit {theirs.code} and {ours.code}\n"
                f"  theirs alone: {missing[:4]}\n  ours alone: {extra[:4]}\n"
                f"  {theirs.errors[:200]!r}\n  {ours.errors[:300]!r}"
            )
    assert not different, "\n".join(different)
