"""`ottla secure`: what it makes works together, and what is not secured is not opened."""

from __future__ import annotations

import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.settings.exposure import beyond_loopback
from ottla.settings.properties import parse_properties
from ottla.supervisor.ports import free_ports
from tests.cli.process import Ended, ottla
from tests.live import Server


class MadeServer(Server):
    """A server by the options that `ottla secure` wrote, and no others."""

    def __init__(self, folder: Path) -> None:
        self.made = folder / "made"
        self.first_port = free_ports(3)
        done = secure(self.made, "--port", str(self.first_port), "--certificates")
        assert done.code == 0, done
        super().__init__(folder / "data", port=self.first_port)

    def _command(self) -> list[str]:
        command = super()._command()
        at = [place for place, word in enumerate(command) if word == "--listen"]
        for place in at:
            del command[place : place + 2]
        return command

    def _arguments(self) -> list[str]:
        metrics = f"https://127.0.0.1:{self.first_port + 2}"
        return ["--config", str(self.made / "server.properties"), "--metrics", metrics]

    def properties(self, name: str) -> dict[str, str]:
        text = (self.made / name).read_text()
        return {each.name: each.value for each in parse_properties(text, name)}


def secure(directory: Path, *more: str) -> Ended:
    return ottla("secure", "--dir", directory, "--hosts", "localhost", *more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeServer]:
    with MadeServer(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.mark.parametrize("name", ["client.properties", "client-certificate.properties"])
def test_what_is_made_works_together(server: MadeServer, name: str) -> None:
    """A record is written and read with the files as they are: by a password, by a certificate."""
    there = ["-b", server.properties(name)["bootstrap.servers"]]
    there += ["--command-config", str(server.made / name)]
    topic = name.partition(".")[0]
    made = ottla("topics", "create", topic, *there)
    assert made.code == 0, made
    listed = ottla("topics", "--list", *there)
    assert topic in listed.out.split(), listed


def test_who_is_not_known_stays_out(server: MadeServer, tmp_path: Path) -> None:
    """Without the password, without the authority, without a certificate: each with a sentence."""
    good = (server.made / "client.properties").read_text()
    wrong = {
        "password": (good.replace('password="', 'password="x'), "Invalid username or password"),
        "protocol": (good.replace("SASL_SSL", "SASL_PLAINTEXT"), "bootstrap"),
    }
    for name, (text, words) in wrong.items():
        file = tmp_path / f"{name}.properties"
        file.write_text(text)
        servers = server.properties("client.properties")["bootstrap.servers"]
        ended = ottla("topics", "--list", "-b", servers, "--command-config", file)
        assert ended.code == 1, ended
        assert words in ended.errors.lower() or words in ended.errors, ended


def test_librdkafka_takes_the_same_files(server: MadeServer) -> None:
    """The authority as its ssl.ca.location, name and password of the JAAS line."""
    login = server.properties("client.properties")["sasl.jaas.config"]
    password = login.split('password="')[1].split('"')[0]
    admin = AdminClient(
        {
            "bootstrap.servers": f"localhost:{server.first_port}",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(server.made / "ca.pem"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": password,
        }
    )
    assert list(admin.list_topics(timeout=30).brokers) == [1]


def test_metrics_want_a_certificate(server: MadeServer) -> None:
    """With --metrics https:// the endpoint answers who shows one of the authority's."""
    url = f"https://localhost:{server.first_port + 2}/metrics"
    context = ssl.create_default_context(cafile=server.made / "ca.pem")
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(url, context=context, timeout=30).read()
    context.load_cert_chain(server.made / "client.pem")
    with urllib.request.urlopen(url, context=context, timeout=30) as answer:
        assert b"kafka_server_" in answer.read()


def test_files_are_for_one_user_alone(server: MadeServer) -> None:
    """0600 each, in a directory of 0700: keys and passwords are in them."""
    assert stat.S_IMODE(server.made.stat().st_mode) == 0o700
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in server.made.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 7


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A second run is refused; --renew makes certificates of the same authority, and no more."""
    made = tmp_path / "made"
    assert secure(made).code == 0
    before = {each.name: each.read_bytes() for each in made.iterdir()}
    refused = secure(made)
    assert refused.code == 1
    assert refused.said("holds ca.pem", "--renew"), refused
    renewed = secure(made, "--renew", "--days", "5")
    assert renewed.code == 0, renewed
    after = {each.name: each.read_bytes() for each in made.iterdir()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"broker.pem", "client.pem"}
    assert stat.S_IMODE((made / "broker.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("hosts", "fact"),
    [("", "must be names"), ("a b", "must be names"), ("https://x", "must be names")],
)
def test_hosts_that_are_none(hosts: str, fact: str, tmp_path: Path) -> None:
    """Nothing is made for them."""
    ended = ottla("secure", "--dir", tmp_path / "made", "--hosts", hosts)
    assert ended.code == 2, ended
    assert ended.said(fact, "--hosts"), ended
    assert not (tmp_path / "made").exists()


OPEN = [
    (
        ["--set", "listeners=PLAINTEXT://:0", "--set", "advertised.listeners=PLAINTEXT://h:1"],
        "",
        "",
    ),
    (["--listen", "192.0.2.1:0"], "listener PLAINTEXT (192.0.2.1:0)", "ottla secure"),
    (["--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"], "--metrics 0.0.0.0:0", "https://"),
    (["--set", "node.id=1", "--set", "zookeeper.connect=192.0.2.1:2181"], "all interfaces", ""),
    (
        ["--listen", "127.0.0.1:0", "--metrics", "https://127.0.0.1:0"],
        "needs a listener of TLS",
        "",
    ),
]


@pytest.mark.parametrize(("arguments", "fact", "hint"), OPEN)
def test_what_is_not_secured_is_not_opened(
    arguments: list[str], fact: str, hint: str, tmp_path: Path
) -> None:
    """A listener without encryption, and metrics, beyond loopback: a sentence that names the way
    out, before anything is opened or written."""
    ended = ottla("server", "--data-dir", tmp_path / "data", *arguments)
    assert ended.code == 1, ended
    assert fact in ended.errors, ended
    assert hint in ended.errors, ended
    assert "Try: " in ended.errors, ended
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("by", ["flag", "option"])
def test_it_can_be_insisted_on(by: str, tmp_path: Path) -> None:
    """--insecure, or ottla.insecure=true: the server begins to listen where it was told to; here it
    is an address that is not this machine's, so that no one else is let in."""
    how = ["--insecure"] if by == "flag" else ["--set", "ottla.insecure=true"]
    ended = ottla("server", "--data-dir", tmp_path / "data", "--listen", "192.0.2.1:0", *how)
    assert ended.code == 1, ended
    assert ended.said("not an address of this machine"), ended


@pytest.mark.parametrize(
    ("host", "beyond"),
    [
        ("127.0.0.1", False), ("127.9.9.9", False), ("localhost", False), ("::1", False),
        ("", True), ("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("fd00::1", True),
        ("kafka.example.com", True),
    ],
)  # fmt: skip
def test_what_other_machines_reach(host: str, beyond: bool) -> None:
    """All but the addresses of the loopback interface."""
    assert beyond_loopback(host) is beyond
