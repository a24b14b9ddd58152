"""What `ottla` says when it cannot do what was asked: one sentence, a hint, an exit code."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.failure import Failure, cannot_listen, cannot_use_directory
from ottla.cli.kafka_scripts import zookeeper, zookeeper_server_start, zookeeper_shell
from ottla.cli.kafka_scripts.running import guarded
from tests.cli.process import Server, ottla
from tests.small_disk import remount, small_disk


@pytest.mark.parametrize(
    ("arguments", "fact", "hint"),
    [
        (["nonsense"], "no such command 'nonsense'", "ottla --help"),
        (["server", "--nonsense"], "no such option '--nonsense'", "ottla server --help"),
        (["server", "extra"], "unexpected extra argument", "ottla server --help"),
        (["server", "--log-level", "loud"], "'loud' is not one of", "ottla server --help"),
        (["server", "--listen", "here"], "--listen: must be HOST:PORT (got 'here')", "--listen"),
        (["server", "--listen", "::1:9092"], "must stand in brackets", "--listen"),
        (["server", "--listen", "127.0.0.1:65536"], "between 0 and 65535", "--listen"),
        (["server", "--metrics", "9404"], "--metrics: must be HOST:PORT", "--metrics"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], fact: str, hint: str) -> None:
    """The option, the value and the rule are named, and what to try."""
    ended = ottla(*arguments)
    assert ended.code == 2, ended
    assert ended.said(fact, hint), ended


@pytest.mark.parametrize(
    ("setting", "fact"),
    [
        ("num.partitions=many", "num.partitions"),
        ("num.partitions", "--set: must be name=value"),
        ("zookeeper.connect=localhost:99999", "zookeeper.connect"),
        ("listeners=SSL://127.0.0.1:9093", "cannot listen on SSL"),
        ("listeners=SASL_SSL://127.0.0.1:9093", "cannot listen on SASL_SSL"),
        ("listeners=SASL_PLAINTEXT://127.0.0.1:9093", "Kerberos is not supported"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "non-routable"),
    ],
)
def test_a_setting_that_cannot_be_honoured_exits_with_1(
    setting: str, fact: str, tmp_path: Path
) -> None:
    """Option, value, rule and what to try; nothing is created."""
    ended = ottla("server", "--data-dir", tmp_path / "data", "--set", setting)
    assert ended.code == 1, ended
    assert ended.said(fact), ended
    assert not (tmp_path / "data").exists()


def test_a_zookeeper_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """At the first start too, when there is no data directory yet."""
    pytest.importorskip("kazoo")
    settings = ["--set", "broker.id=1", "--set", "zookeeper.connection.timeout.ms=100"]
    settings += ["--set", "zookeeper.connect=127.0.0.1:1/kafka"]
    ended = ottla("server", "--data-dir", tmp_path / "data", *settings)
    assert ended.code == 1, ended
    *_, fact, hint = ended.errors.splitlines()
    assert fact.startswith("ottla: ZooKeeper at 127.0.0.1:1: no server answered"), ended
    assert hint.startswith("Try: "), ended
    assert "zookeeper.connect" in hint, ended


def test_a_file_of_options_names_its_line(tmp_path: Path) -> None:
    """A wrong value is found by file and line; a missing file is named."""
    file = tmp_path / "server.properties"
    file.write_text("# mine\nnum.partitions=-3\n")
    ended = ottla("server", "--config", file)
    assert ended.code == 1
    assert ended.said("server.properties line 2"), ended
    ended = ottla("server", "--config", tmp_path / "none")
    assert ended.code == 1
    assert ended.said("no such file"), ended


def test_a_port_in_use(tmp_path: Path) -> None:
    """Named in one sentence, for clients and for metrics."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = ottla("server", "--data-dir", tmp_path / "data", "--listen", address)
        assert ended.code == 1
        assert ended.said(f"cannot listen on {address}: the port is in use"), ended
        ended = ottla(
            "server", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0",
            "--metrics", address,
        )  # fmt: skip
        assert ended.code == 1
        assert ended.said(f"cannot listen on {address}", "--metrics"), ended


def test_a_second_server_on_the_same_directory(tmp_path: Path) -> None:
    """It is refused in a sentence, and the first goes on."""
    with Server(tmp_path / "data") as first:
        ended = ottla("server", "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0")
        assert ended.code == 1
        assert ended.said("in use by another server"), ended
        assert first.process is not None
        assert first.process.poll() is None


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """A file in its place is said to be one."""
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        ended = ottla("server", "--data-dir", directory, "--listen", "127.0.0.1:0")
        assert ended.code == 1
        assert ended.said("it is not a directory", "--data-dir"), ended


DISK_KB = 160


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", DISK_KB) as where:
        yield where


@pytest.mark.parametrize("free_kb", [0, 4, 8, 16, 32, 48, 64])
def test_a_full_disk(disk: Path, free_kb: int) -> None:
    """Whichever of its first files the disk cannot take: the same sentence, and nothing else."""
    (disk / "filler").write_bytes(bytes((DISK_KB - free_kb) * 1024))
    ended = ottla("server", "--data-dir", disk / "data", "--listen", "127.0.0.1:0")
    assert ended.code == 1
    assert ended.said("cannot start: no space left for", "free space"), ended


def test_a_disk_that_cannot_be_written(disk: Path) -> None:
    """A read-only file system: one sentence."""
    remount(disk, "ro")
    ended = ottla("server", "--data-dir", disk / "data", "--listen", "127.0.0.1:0")
    assert ended.code == 1
    assert ended.said("read-only file system"), ended


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EROFS, "read-only file system"),
        (errno.EACCES, "permission denied"),
        (errno.ENOTDIR, "not a directory"),
        (errno.EMFILE, "too many open files"),
        (errno.EIO, "input/output error"),
    ],
)
def test_every_trouble_with_the_directory_has_words(number: int, words: str) -> None:
    """A sentence without a number, and a hint."""
    failure = cannot_use_directory(OSError(number, os.strerror(number), "/data/x"), "/data")
    assert words in failure.fact
    assert failure.hint
    assert failure.exit_code == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "in use"),
        (OSError(errno.EACCES, "denied"), "needs more rights"),
        (OSError(errno.EADDRNOTAVAIL, "not available"), "not an address of this machine"),
        (socket.gaierror(-2, "unknown"), "has no address"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    ],
)
def test_every_trouble_with_a_port_has_words(error: OSError, words: str) -> None:
    """A sentence and a hint."""
    failure = cannot_listen(error, "127.0.0.1:1", "--listen")
    assert words in failure.fact
    assert "--listen" in failure.hint


def test_a_failure_reads_in_two_lines() -> None:
    """First the fact, then what to try."""
    assert Failure("it is so", "something else").text() == "ottla: it is so\nTry: something else"
    assert Failure("it is so").text() == "ottla: it is so"


def test_a_wrong_port_for_metrics_in_the_environment(tmp_path: Path) -> None:
    """JMX_PORT is named, not the option it stands for."""
    ended = ottla("server", "--data-dir", tmp_path, JMX_PORT="many")
    assert ended.code == 2
    assert ended.said("JMX_PORT: must be a port (got 'many')"), ended


@pytest.mark.parametrize(
    ("java", "fact", "hint"),
    [
        ("/usr/bin/java", "ZooKeeper's jars are not here", "set ZOOKEEPER_HOME to its directory"),
        (None, "needs Java, which is not installed", "install Java 17"),
    ],
)
def test_without_zookeepers_jars_its_scripts_say_how_to_get_them(
    java: str | None,
    fact: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is started; fact and hint are for the script that was called."""
    monkeypatch.setenv(zookeeper.HOME, str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: java)
    file = tmp_path / "zookeeper.properties"
    file.write_text("clientPort=2181\n")
    for script, arguments in (
        (zookeeper_server_start.run, ["-daemon", str(file)]),
        (zookeeper_server_start.run, [str(file)]),
        (zookeeper_shell.run, ["localhost:2181"]),
    ):
        assert guarded(script, arguments) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2, lines
        assert lines[0].startswith("zookeeper-s")
        assert fact in lines[0]
        assert hint in lines[1]
