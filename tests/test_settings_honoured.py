"""An option says whether it changes anything here, and that must be true."""

import re
from pathlib import Path

import ottla
from ottla.settings import BROKER_OPTIONS, Standing
from ottla.settings.topic import SYNONYMS

ROOT = Path(ottla.__file__).parent
# Read in `settings` itself, to make sense of the other options.
READ_BY_SETTINGS = {
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "log.flush.before.ack",
    "max.connections.per.ip.overrides",
    "node.id",
    "process.roles",
    "producer.id.expiration.ms",
    "security.inter.broker.protocol",
}


def read_options() -> set[str]:
    """Every option named in the source outside the tables, and the defaults of topic configs."""
    named = {name for family in SYNONYMS.values() for name, _ in family}
    for path in ROOT.rglob("*.py"):
        if "settings" not in path.relative_to(ROOT).parts:
            named |= set(re.findall(r'"([a-z0-9]+(?:\.[a-z0-9]+)+)"', path.read_text()))
    return (named | READ_BY_SETTINGS) & BROKER_OPTIONS.keys()


def test_what_is_honoured_is_read() -> None:
    """If this fails: read the option, or declare it with `idle(` in ottla/settings."""
    honoured = {
        name for name, option in BROKER_OPTIONS.items() if option.standing is Standing.HONOURED
    }
    assert honoured - read_options() == set()


def test_what_has_no_effect_is_not_read() -> None:
    """If this fails: declare the option with `Option(` instead of `idle(` in ottla/settings."""
    idle = {name for name, option in BROKER_OPTIONS.items() if option.standing is Standing.IDLE}
    # A dynamic default of a topic config that is idle itself.
    tiered = {"log.local.retention.ms", "log.local.retention.bytes"}
    assert (idle & read_options()) - tiered == set()
