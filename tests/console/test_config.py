"""What a console is asked to show: the command line, its own file, Kafka-Eagle's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.console.config.command_line import options_of
from ottla.console.config.eagle import servers_beside
from ottla.console.config.options import ConfigError

EAGLE = """\
# as the notes have it
kafka.eagle.zk.cluster.alias=cluster1,cluster2
cluster1.zk.list=hadoop102:2181,hadoop103:2181/kafka
cluster2.zk.list=other:2181
cluster1.kafka.eagle.broker.size=20
cluster1.kafka.eagle.offset.storage=kafka
kafka.eagle.webui.port=8048
kafka.eagle.metrics.charts=true
kafka.eagle.metrics.retain=30
kafka.eagle.topic.token=keadmin
cluster2.efak.ssl.enable=true
cluster2.efak.ssl.protocol=SSL
cluster2.efak.ssl.truststore.location=/trust.p12
cluster2.efak.ssl.truststore.password=not to be shown
kafka.eagle.driver=com.mysql.jdbc.Driver
kafka.eagle.url=jdbc:mysql://hadoop102:3306/ke?useUnicode=true
kafka.eagle.username=root
kafka.eagle.password=000000
"""
TOML = """\
port = 9000
data_dir = "kept"
names = ["console.example.com"]
[clusters.main]
bootstrap_servers = ["one:9092", "two:9092"]
metrics = "0=http://one:9100/metrics"
[clusters.secret]
bootstrap_servers = "three:9093"
properties_file = "client.properties"
properties = { "request.timeout.ms" = 5000, "of.java" = "x" }
[[alerts.rules]]
name = "lag"
"""


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_a_file_names_several_clusters(tmp_path: Path) -> None:
    """Each with its own servers, endpoints and client properties; the command line comes on top."""
    write(tmp_path, "client.properties", "security.protocol=SSL\nssl.ca.location = /ca.pem\n")
    config = write(tmp_path, "console.toml", TOML)
    options = options_of(config=config, port=9001, names=("other",), read_only=True)
    main, secret = options.clusters
    assert (main.name, main.client_properties) == (
        "main", {"bootstrap_servers": "one:9092,two:9092"},
    )  # fmt: skip
    assert main.metrics == ("0=http://one:9100/metrics",)
    assert secret.client_properties == {
        "bootstrap_servers": "three:9093",
        "security_protocol": "SSL",
        "ssl_cafile": "/ca.pem",
        "request_timeout_ms": 5000,
    }
    assert (options.port, options.names) == (9001, ("console.example.com", "other"))
    assert options.read_only
    assert options.data_directory == str(tmp_path / "kept")
    assert options.alerts == {"rules": [{"name": "lag"}]}
    [warning] = options.warnings
    assert "of.java" in warning


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("colour = 1", "there is no option 'colour'"),
        ("port = '1'", "port must be a whole number"),
        ("port = 70000\n[clusters.a]\nbootstrap_servers='b:1'", "--port must be from 0"),
        ("login = false\nhost = '0.0.0.0'\n[clusters.a]\nbootstrap_servers='b:1'", "--no-login"),
        ("host = '0.0.0.0'\n[clusters.a]\nbootstrap_servers='b:1'", "--certificate"),
        ("[clusters.a]", "bootstrap_servers is missing"),
        ("[clusters.'a/b']\nbootstrap_servers='b:1'", "a cluster's name"),
        ("[clusters.a]\nbootstrap_servers='b:1'\nmetrics='b:1'", "must be URLs"),
        ("[clusters.a]\nbootstrap_servers='b:1'\nmetrics=[1]", "list of strings"),
        ("[clusters.a]\nproperties={retry_backoff_ms='x'}", "retry_backoff_ms must be"),
        ("[clusters.a]\nproperties_file='no'", "cannot read"),
        ("this is not", "is not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, names: str) -> None:
    """With its place, the rule, and what to try."""
    with pytest.raises(ConfigError, match="\nTry: ") as raised:
        options_of(config=write(tmp_path, "console.toml", text))
    assert names in str(raised.value)


def test_a_password_that_cannot_be_is_not_shown(tmp_path: Path) -> None:
    """An error names the option of a secret, not its value."""
    text = "[clusters.a]\nbootstrap_servers='b:1'\nproperties={ssl_password=12345}"
    with pytest.raises(ConfigError) as raised:
        options_of(config=write(tmp_path, "console.toml", text))
    assert "ssl_password" in str(raised.value)
    assert "12345" not in str(raised.value)


def test_clusters_come_from_one_place(tmp_path: Path) -> None:
    """A file's clusters and --bootstrap-server together are refused; without any, localhost."""
    config = write(tmp_path, "console.toml", "[clusters.a]\nbootstrap_servers='b:1'")
    with pytest.raises(ConfigError, match="says which clusters"):
        options_of(config=config, bootstrap="c:1")
    assert options_of().clusters[0].client_properties == {"bootstrap_servers": "localhost:9092"}
    given = write(tmp_path, "client.properties", "bootstrap.servers=d:1\nclient.id=me")
    found = options_of(command_config=given).clusters[0].client_properties
    assert found == {"bootstrap_servers": "d:1", "client_id": "me"}


def test_the_notes_file_is_read(tmp_path: Path) -> None:
    """Clusters by their prefixes, TLS where it is switched on, the port; the database's options are
    answered with one sentence and let nobody in."""
    options = options_of(config=write(tmp_path, "system-config.properties", EAGLE))
    first, second = options.clusters
    assert (first.name, first.zookeeper) == ("cluster1", "hadoop102:2181,hadoop103:2181/kafka")
    assert second.client_properties == {
        "security_protocol": "SSL",
        "ssl_truststore_location": "/trust.p12",
        "ssl_truststore_password": "not to be shown",
    }
    assert (options.port, options.login) == (8048, True)
    [sentence] = options.warnings
    assert "SQLite is built in" in sentence
    assert "000000" not in sentence
    assert servers_beside(first.zookeeper) == "hadoop102:9092,hadoop103:9092"


def test_later_names_and_no_list_of_aliases(tmp_path: Path) -> None:
    """`efak.` names count as the earlier ones; without a list, prefixes are the clusters."""
    text = "main.zk.list=a\nother.bootstrap.servers=b:9\nefak.webui.port=8050\n"
    options = options_of(config=write(tmp_path, "system-config.properties", text))
    assert [(each.name, each.zookeeper) for each in options.clusters] == [
        ("main", "a"), ("other", ""),
    ]  # fmt: skip
    assert options.port == 8050
    assert servers_beside("a") == "a:9092"
    with pytest.raises(ConfigError, match="names no cluster"):
        options_of(config=write(tmp_path, "empty.properties", "kafka.eagle.url=jdbc:x"))


def test_what_is_encrypted_may_be_open(tmp_path: Path) -> None:
    """A console of other machines has a certificate, or whoever runs it insists."""
    text = "host = '0.0.0.0'\ncertificate = 'c.pem'\n[clusters.a]\nbootstrap_servers='b:1'"
    options = options_of(config=write(tmp_path, "console.toml", text))
    assert options.certificate == str(tmp_path / "c.pem")
    assert options_of(bootstrap="b:1", host="0.0.0.0", insecure=True).insecure
