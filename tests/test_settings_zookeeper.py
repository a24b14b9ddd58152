"""Where a broker listens when its cluster is in ZooKeeper and no listener is named."""

import pytest

from ottla.settings import Settings
from ottla.settings.properties import parse_properties
from ottla.settings.sources import entry_of_assignment

NOTES = """\
broker.id=1
delete.topic.enable=true
log.dirs=/opt/module/kafka/logs
zookeeper.connect={connect}
replica.lag.time.max.ms=10000
"""


def test_a_broker_of_several_hosts_can_be_reached_by_the_others() -> None:
    """A file as handbooks of Kafka have it names no listener, and three hosts use the same one: as
    in Kafka each listens on all interfaces, under its own name. It is said, for nobody is asked
    for a password."""
    text = NOTES.format(connect="node01:2181,node02:2181,node03:2181/kafka")
    settings = Settings.load(parse_properties(text, "server.properties"))
    assert settings.listeners[0][:5] == ("PLAINTEXT", "", 9092, "", 9092)
    [said] = settings.warnings
    assert said.startswith("listeners is not set")
    assert settings.with_dynamic({}, {"num.io.threads": "9"}).listeners == settings.listeners
    given = Settings.load(
        parse_properties(text, "f"), [entry_of_assignment("listeners=PLAINTEXT://10.0.0.1:9092")]
    )
    assert given.listeners[0].host == "10.0.0.1"
    assert given.warnings == ()


@pytest.mark.parametrize("connect", ["localhost:2181", "127.0.0.1:2181,[::1]:2181/kafka"])
def test_a_broker_whose_zookeeper_is_on_its_host_lets_nobody_in(connect: str) -> None:
    """So are all other brokers then."""
    text = NOTES.format(connect=connect)
    settings = Settings.load(parse_properties(text, "server.properties"))
    assert settings.listeners[0][:2] == ("PLAINTEXT", "127.0.0.1")
    assert settings.warnings == ()
