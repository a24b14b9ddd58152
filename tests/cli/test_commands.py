"""The `ottla` commands on a live broker: tables, JSON, exit codes, what to try."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import click
import pytest

from ottla.cli.main import COMMANDS, run
from ottla.client.admin import Admin, NewTopic
from tests.cli.compare import captured
from tests.cli.process import Ended
from tests.cli.state import State

pytestmark = pytest.mark.xdist_group("tools")
numbers = itertools.count(1)


def ottla(state: State, line: str, *more: str, text: str = "") -> Ended:
    """One command inside this process."""
    words = [word.replace("~", " ") for word in line.split()]
    code, out, errors = captured(lambda: run([*words, *more, "-b", state.bootstrap]), text)
    return Ended(code, out, errors)


def from_json(ended: Ended) -> Any:
    assert ended.code == 0, ended
    return json.loads(ended.out)


@pytest.fixture
def name() -> str:
    return f"command-{next(numbers)}"


def test_a_topic_lives_and_dies(state: State, name: str) -> None:
    """create, list, describe, alter, delete; each says what it did."""
    made = ottla(state, f"topics create {name} -p 2 -c retention.ms=100000")
    assert made.out == f"created {name}\n"
    again = ottla(state, f"topics create {name}")
    assert again.code == 1
    assert again.said("there is a topic", "--if-not-exists")
    assert ottla(state, f"topics create {name} --if-not-exists").code == 0
    assert name in ottla(state, "topics list").out.splitlines()
    shown = ottla(state, f"topics describe {name}").out
    assert "retention.ms=100000" in shown
    assert re.search(r"PARTITION +LEADER +REPLICAS +IN SYNC", shown)
    assert ottla(state, f"topics alter {name} -p 3").out == f"{name}: 3 partitions now\n"
    described = from_json(ottla(state, f"topics describe {name} --json"))
    assert [each["partition"] for each in described[0]["partitions"]] == [0, 1, 2]
    assert ottla(state, f"topics delete {name}").out == f"deleted {name}\n"
    assert ottla(state, f"topics delete {name}").said("there is no topic", "ottla topics list")
    assert ottla(state, f"topics delete {name} --if-exists").code == 0


def test_verbs_may_be_flags(state: State) -> None:
    """`ottla topics --list` is `ottla topics list`."""
    assert ottla(state, "topics --list").out == ottla(state, "topics list").out
    assert ottla(state, "topics --describe --topic orders").code == 0
    assert from_json(ottla(state, "topics --list --json --no-internal lin.*")) == ["lines"]


def test_records_go_in_and_out(state: State, name: str) -> None:
    """produce from lines and words; consume by format, JSON, count, offset, time, the last N."""
    ottla(state, f"topics create {name} -p 1")
    sent = ottla(state, f"produce {name} -K : -Z NULL -H a=1", text="k1:v1\nk2:NULL\n")
    assert sent.code == 0, sent
    where = ottla(state, f"produce {name} --key k3 --json", '{"x": 5}').out
    assert json.loads(where) == {"partition": 0, "offset": 2}
    assert ottla(state, f"consume {name}").out == 'v1\n\n{"x": 5}\n'
    shaped = ottla(state, f"consume {name} --null - -f", r"%t %p:%o %k=%v %h %K/%S%%\n").out
    assert shaped.splitlines() == [
        f"{name} 0:0 k1=v1 a=1 2/2%",
        f"{name} 0:1 k2=- a=1 2/-1%",
        f'{name} 0:2 k3={{"x": 5}}  2/8%',
    ]
    assert ottla(state, f"consume {name} -n 1").out == "v1\n"
    assert ottla(state, f"consume {name} --last 1 -f %o").out == "2"
    assert ottla(state, f"consume {name} --from 1 -f %o").out == "12"
    assert ottla(state, f"consume {name} --from end").out == ""
    assert ottla(state, f"consume {name} --from 2020-01-01T00:00:00 -p 0 -f %o").out == "012"
    assert ottla(state, f"consume {name} --from 2090-01-01T00:00:00").out == ""
    rows = ottla(state, f"consume {name} --json --value-decoder json --from 2").out
    assert json.loads(rows)["value"] == {"x": 5}
    assert ottla(state, f"consume {name} --value-decoder hex -n 1").out == "7631\n"
    assert ottla(state, f"consume {name} -g {name}-group -n 3 -f %o").out == "012"


@pytest.mark.parametrize(
    ("line", "fact", "hint", "code"),
    [
        ("consume nope", "there is no topic 'nope'", "ottla topics list", 1),
        ("consume orders -p 9", "no partition 9", "--partition 0 to 2", 1),
        ("consume orders -f %q", "%q means nothing", "--help", 2),
        ("consume orders --from soon", "'soon' is not a time", "--from beginning", 2),
        ("topics describe nope", "there is no topic 'nope'", "ottla topics list", 1),
        ("topics create", "the name of a topic is missing", "ottla topics create", 2),
        ("groups describe nope", "there is no group 'nope'", "ottla groups list", 1),
        ("groups delete nope", "there is no group 'nope'", "ottla groups list", 1),
        ("groups delete live", "group 'live' has members", "--members", 1),
        ("configs set topic orders a=b", "Unknown topic config name: a", "--all", 1),
        ("configs set topic orders", "nothing to set", "ottla configs set", 2),
        ("configs describe topic", "name is missing", "ottla configs", 2),
        ("offsets reset live --to end", "has members", "stop them", 1),
        ("offsets reset idle --to x", "is not a time", "--to beginning", 2),
        ("offsets list nope", "there is no topic 'nope'", "ottla topics list", 1),
        ("offsets delete idle --topic nope", "no offsets of nope", "ottla groups list", 1),
        ("records delete orders", "which records?", "--before OFFSET", 2),
        ("transactions describe nope", "no transactional id 'nope'", "transactions list", 1),
        ("transactions abort orders 0 5", "no transaction of orders-0 began", "producers", 1),
    ],
)
def test_a_failure_is_a_fact_and_what_to_try(
    line: str, fact: str, hint: str, code: int, state: State
) -> None:
    """Two lines on standard error, nothing on standard output, an exit code."""
    ended = ottla(state, line)
    assert ended.code == code, ended
    assert ended.said(fact, hint), ended
    assert ended.out == ""


def test_groups_and_offsets(state: State) -> None:
    """Lag and members are shown; a reset is shown first and done on --execute."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.alter_group_offsets("mine", {("orders", 0): 4})  # type: ignore[dict-item]
    assert {"group": "live", "state": "Stable", "type": "classic"} in from_json(
        ottla(state, "groups list --json")
    )
    shown = from_json(ottla(state, "groups describe mine --json"))["offsets"]
    assert [(each["offset"], each["end"], each["lag"]) for each in shown] == [(4, 10, 6)]
    members = from_json(ottla(state, "groups describe live --members --json"))["members"]
    assert sorted(each["client"] for each in members) == ["one", "two"]
    assert "2 members" in ottla(state, "groups describe live").out
    dry = ottla(state, "offsets reset mine --to beginning")
    assert "nothing was changed" in dry.errors
    for target, expected in (("end", 10), ("+1", 10), ("-3", 7), ("5", 5), ("P1D", 0)):
        rows = from_json(ottla(state, f"offsets reset mine --to {target} --execute --json"))
        assert [row["to"] for row in rows] == [expected], target
    moment = state.words["$MIDDLE"]
    rows = from_json(ottla(state, f"offsets reset mine --topic orders --to {moment} --json"))
    assert [row["to"] for row in rows] == [5, 5, 5]
    assert ottla(state, "offsets delete mine --topic orders").out == "forgot 1 offsets\n"
    listed = from_json(ottla(state, f"offsets list orders --at {moment} --json"))
    assert [(row["begins_at"], row["ends_at"], row["at_time"]) for row in listed] == [
        (0, 10, 5)
    ] * 3
    ottla(state, "groups delete mine")


def test_groups_of_every_kind(state: State) -> None:
    """Groups of the new protocol and share groups are listed, described and deleted alike."""
    listed = {each["group"]: each for each in from_json(ottla(state, "groups list --json"))}
    kinds = [listed[each]["type"].lower() for each in ("live", "modern", "sharing")]
    assert kinds == ["classic", "consumer", "share"]
    modern = from_json(ottla(state, "groups describe modern --members --json"))
    partitions = [each for member in modern["members"] for each in member["partitions"]]
    assert (modern["type"], len(partitions)) == ("consumer", 5)
    shared = from_json(ottla(state, "groups describe parked --json"))
    assert (shared["type"], shared["state"]) == ("share", "Empty")
    assert [each["lag"] for each in shared["offsets"]] == [0, 0, 0]
    shown = ottla(state, "groups describe sharing --members")
    assert "share, Stable, 1 members" in shown.out
    refused = ottla(state, "groups delete sharing")
    assert refused.said("group 'sharing' has members", "ottla groups describe sharing")


def test_configs_and_records(state: State, name: str) -> None:
    """Set, describe, unset; delete records below an offset."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
    assert ottla(state, f"configs set topic {name} retention.ms=5000000").code == 0
    rows = from_json(ottla(state, f"configs describe topic {name} --json"))
    assert "retention.ms" in [row["name"] for row in rows if row["source"] == "dynamic topic"]
    assert ottla(state, f"configs describe topic {name} --all").out.count("\n") > 25
    assert ottla(state, f"configs describe topic {name} retention.ms").out.count("\n") == 2
    assert ottla(state, f"configs unset topic {name} retention.ms").code == 0
    assert "min.insync.replicas" in ottla(state, "configs describe brokers").out
    ottla(state, f"produce {name}", text="a\nb\nc\n")
    rows = from_json(ottla(state, f"records delete {name} --before 2 --json"))
    assert rows == [{"topic": name, "partition": 0, "begins_at": 2}]
    assert from_json(ottla(state, f"records delete {name} --all --json"))[0]["begins_at"] == 3


def test_cluster_and_transactions(state: State) -> None:
    """The cluster's facts, features, directories and APIs; transactions and their producers."""
    facts = from_json(ottla(state, "cluster describe --json"))
    assert [broker["broker"] for broker in facts["brokers"]] == [1]
    assert "cluster id" in ottla(state, "cluster describe").out
    features = from_json(ottla(state, "cluster features --json"))
    assert {"metadata.version", "transaction.version"} <= {row["feature"] for row in features}
    assert from_json(ottla(state, "cluster log-dirs --json"))[0]["bytes"] > 0
    assert from_json(ottla(state, "cluster versions --json"))[0]["api"] == "Produce"
    listed = from_json(ottla(state, "transactions list --json"))
    assert {row["transactional_id"]: row["state"] for row in listed}["open"] == "Ongoing"
    assert "payments-1" in ottla(state, "transactions describe open").out
    producers = from_json(ottla(state, "transactions producers payments 1 --json"))
    assert any(row["open_since_offset"] is not None for row in producers)
    assert "nothing hangs" in ottla(state, "transactions hanging").errors


def test_performance(state: State, name: str) -> None:
    """Each measure counts all its records."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
    assert from_json(ottla(state, f"perf produce {name} -n 500 --json"))["records"] == 500
    assert from_json(ottla(state, f"perf consume {name} -n 500 --json"))["records"] == 500
    assert from_json(ottla(state, f"perf latency {name} -n 3 --json"))["records"] == 3
    short = ottla(state, f"perf consume {name} -n 900 --timeout-ms 300")
    assert short.said("only 503 of 900 records came"), short


def test_follow_waits_for_more(state: State, name: str) -> None:
    """`ottla consume --follow` prints what comes after it began, until it is stopped."""
    with Admin(bootstrap_servers=state.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
    ottla(state, f"produce {name}", "before")
    words = [sys.executable, "-m", "ottla", "consume", name, "--follow", "-n", "1"]
    with subprocess.Popen(
        [*words, "-b", state.bootstrap], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                ottla(state, f"produce {name}", "after")
                time.sleep(0.1)
            assert process.poll() == 0
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == "after\n"


def test_a_pipe_gets_no_colour(state: State) -> None:
    """Escape sequences are for terminals alone."""
    assert "\x1b" not in ottla(state, "groups describe idle").out


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer: its address and what to try, within seconds."""
    monkeypatch.setattr("ottla.cli.connecting.BOOTSTRAP_TIMEOUT_MS", 400)
    code, out, errors = captured(lambda: run(["topics", "--list", "-b", "127.0.0.1:1"]))
    assert (code, out) == (1, "")
    assert errors.splitlines()[0].startswith("ottla: no broker answers at 127.0.0.1:1")
    assert errors.splitlines()[1].startswith("Try: start one with `ottla server`")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_is_worth_reading(command: str) -> None:
    """Every command and verb says in a sentence what it does, and so does every option."""
    module, attribute = COMMANDS[command]
    found = [getattr(import_module(module), attribute)]
    for each in found:
        assert each.help, f"{each.name} has no help"
        silent = [p.name for p in each.params if isinstance(p, click.Option) and not p.help]
        assert not silent, f"{command} {each.name}: {silent}"
        if isinstance(each, click.Group):
            found += each.commands.values()
    assert captured(lambda: run([command, "--help"]))[0] == 0


def test_a_command_imports_only_what_it_needs(state: State) -> None:
    """`ottla topics --list` loads neither the broker nor other commands: it must start quickly."""
    code = (
        "import sys; from ottla.cli.main import run; "
        f"run(['topics', '--list', '-b', '{state.bootstrap}']); "
        "print(sorted(name for name in sys.modules if name.startswith('ottla.') or name in "
        "('asyncio', 'cramjam', 'uvloop', 'pyarrow', 'numpy')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = eval(done.stderr)
    unwanted = ("broker", "server", "log", "cluster", "settings", "coordinator", "replica", "seams")
    found = [name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in unwanted]
    assert not found, found
    assert not {"asyncio", "uvloop", "pyarrow", "numpy"} & set(loaded)
    assert len([name for name in loaded if name.startswith("ottla.wire.api.")]) <= 4


def test_the_shell_completes_topics(state: State) -> None:
    """Names of commands and of topics are completed by click's completion."""
    import os

    environment = {
        **os.environ,
        "_OTTLA_COMPLETE": "bash_complete",
        "OTTLA_BOOTSTRAP_SERVERS": state.bootstrap,
    }
    for words, at, expected in (("ottla top", 1, "topics"), ("ottla consume lin", 2, "lines")):
        done = subprocess.run(
            [sys.executable, "-m", "ottla"], capture_output=True, text=True, check=False,
            env={**environment, "COMP_WORDS": words, "COMP_CWORD": str(at)},
        )  # fmt: skip
        assert expected in done.stdout, done
