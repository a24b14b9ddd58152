"""examples/agent: each file is in order, and promises what its comment says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.main import run

EXAMPLES = Path(__file__).parents[2] / "examples" / "agent"
PROMISES = {
    "flume-kafka.conf": {"k1": "at least once: r1 (exec) cannot be read again"},
    "nginx.conf": {"kafka": "exactly once"},
    "nginx.toml": {"kafka": "exactly once"},
    "stack-traces.toml": {"kafka": "exactly once"},
    "fan-out.conf": {"errors": "exactly once", "others": "exactly once"},
}


def test_all_examples_are_here() -> None:
    """No file without a promise."""
    files = {file.name for file in EXAMPLES.iterdir() if file.suffix in (".conf", ".toml")}
    assert files == set(PROMISES)


@pytest.mark.parametrize("file", PROMISES)
def test_an_example_is_in_order(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ottla agent check` has nothing to complain of, nor to warn of."""
    monkeypatch.setenv("LOGS", "/var/log/nginx")
    assert run(["agent", "check", str(EXAMPLES / file), "--json"]) == 0
    [agent] = json.loads(capsys.readouterr().out)
    assert agent["sinks"] == PROMISES[file]
    assert agent["warnings"] == []


def test_an_example_is_the_other_one_converted(capsys: pytest.CaptureFixture[str]) -> None:
    """nginx.toml is what convert makes of nginx.conf, but for its comments."""
    assert run(["agent", "convert", str(EXAMPLES / "nginx.conf")]) == 0
    written = (EXAMPLES / "nginx.toml").read_text().splitlines()
    plain = "\n".join(line for line in written if not line.startswith("#")).strip()
    assert capsys.readouterr().out.strip() == plain


def test_a_file_of_several_agents_is_checked_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong with each agent is said; a name chooses one."""
    file = tmp_path / "two.conf"
    text = (EXAMPLES / "nginx.conf").read_text()
    wrong = text.replace("web.", "a2.").replace("TAILDIR", "avro")
    file.write_text(text + wrong + wrong.replace("a2.", "a3."))
    assert run(["agent", "check", str(file)]) == 1
    said = capsys.readouterr().err
    assert "a2.sources.log.type cannot be avro" in said
    assert "a3.sources.log.type cannot be avro" in said
    assert run(["agent", "check", str(file), "--name", "web"]) == 0
    assert run(["agent", "check", str(file), "--name", "web9"]) == 1
    assert "describes web, a2, a3, and not web9" in capsys.readouterr().err
