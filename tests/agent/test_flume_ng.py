"""`flume-ng`: Flume's command line, and what `ottla` is called with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.cli.kafka_scripts import flume_ng
from ottla.cli.kafka_scripts.running import guarded

RUN = "ottla agent run"


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("-n a1 -c conf/ -f jobs/flume-kafka.conf", f"{RUN} jobs/flume-kafka.conf --name a1"),
        ("--name a1 --conf conf --conf-file x.conf", f"{RUN} x.conf --name a1"),
        ("--name=a1 --conf-file=x.conf", f"{RUN} x.conf --name a1"),
        ("-name a1 -f x.conf -f more.conf", f"{RUN} x.conf more.conf --name a1"),
        (
            "-n a1 -f x.conf -Dflume.root.logger=INFO,console -Xmx512m",
            f"{RUN} x.conf --name a1 --log-level info",
        ),
        (
            "-n a1 -f x.conf --no-reload-conf -Dflume.monitoring.type=http -DNC_PORT=1",
            f"{RUN} x.conf --name a1 --no-reload-conf -D flume.monitoring.type=http -D NC_PORT=1",
        ),
        (
            "-n a1 -f x.conf --instance web-1 --data-dir /d",
            f"{RUN} x.conf --name a1 --data-dir /d --instance web-1",
        ),
    ],
)
def test_options_are_flumes(line: str, called: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All forms that Flume's parser takes; what is for the JVM goes nowhere."""
    assert guarded(flume_ng.run, ["agent", *line.split(), "--dryrun"]) == 0
    assert capsys.readouterr().out.strip() == called


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("agent -n a1", "flume-ng agent: --conf-file is missing"),
        ("agent -f x.conf", "flume-ng agent: --name is missing"),
        ("agent -n", "flume-ng agent: -n requires an argument"),
        ("agent -n a1 -f x --frob", "flume-ng agent: '--frob' is not an option"),
        (
            "agent -n a1 -z zk:2181 -p /flume",
            "flume-ng agent --zkConnString: descriptions are not read from ZooKeeper here",
        ),
        ("avro-client -H h -p 1", "flume-ng avro-client: Avro's remote calls are not served here"),
        ("frob", "Error: Unknown or unspecified command 'frob'"),
    ],
)
def test_what_is_wrong_is_said(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line of stderr says it, and the exit code is 1."""
    assert guarded(flume_ng.run, line.split()) == 1
    assert capsys.readouterr().err.splitlines()[0] == complaint


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """As Flume begins to answer them."""
    assert guarded(flume_ng.run, ["version"]) == 0
    assert capsys.readouterr().out.startswith("Flume 1.11.0 (ottla ")
    assert guarded(flume_ng.run, ["help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: flume-ng <command> [options]...")


def test_the_environment_of_the_conf_directory(tmp_path: Path) -> None:
    """What flume-env.sh exports is found by ${env:NAME}; what it prints does not get in between."""
    script = tmp_path / "flume-env.sh"
    script.write_text("echo hello\nexport BROKERS='one:1 two:2'\nOWN=hidden\n")
    environment = flume_ng.exported(str(script))
    assert environment["BROKERS"] == "one:1 two:2"
    assert "OWN" not in environment
    assert flume_ng.exported(str(tmp_path / "nothing")) == {}


def test_properties_of_the_jvm_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What flume-env.sh says in JAVA_OPTS, exported or not; the command line comes later, so it
    counts more."""
    monkeypatch.setattr("os.environ", dict(os.environ))
    (tmp_path / "flume-env.sh").write_text(
        'JAVA_OPTS="-Xms100m -Dflume.monitoring.type=http -Dflume.monitoring.port=5653"\n'
    )
    line = f"-n a1 -f x.conf -c {tmp_path} --dryrun -Dflume.monitoring.port=1"
    assert guarded(flume_ng.run, ["agent", *line.split()]) == 0
    expected = (
        f"{RUN} x.conf --name a1 -D flume.monitoring.type=http -D flume.monitoring.port=5653 "
        "-D flume.monitoring.port=1"
    )
    assert capsys.readouterr().out.strip() == expected
