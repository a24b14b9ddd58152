"""An option says whether it changes anything here, and that must be true."""

import re
from pathlib import Path

import ottla
from ottla.settings import BROKER_OPTIONS, Standing
from ottla.settings.log_config import LogConfig
from ottla.settings.topic import SYNONYMS, TOPIC_CONFIGS

ROOT = Path(ottla.__file__).parent
# Read in `settings` itself, to make sense of the other options.
READ_BY_SETTINGS = {
    "advertised.listeners",
    "authorizer.class.name",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    # What is here of it is checked at the start (settings/group_checks.py).
    "group.share.assignors",
    "group.share.persister.class.name",
    # The bounds of what a group may set; coordinator/group_options.py derives their names.
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.share.max.assignment.interval.ms",
    "group.share.max.delivery.count.limit",
    "group.share.max.heartbeat.interval.ms",
    "group.share.max.partition.max.record.locks",
    "group.share.max.record.lock.duration.ms",
    "group.share.max.session.timeout.ms",
    "group.share.min.assignment.interval.ms",
    "group.share.min.delivery.count.limit",
    "group.share.min.heartbeat.interval.ms",
    "group.share.min.partition.max.record.locks",
    "group.share.min.record.lock.duration.ms",
    "group.share.min.session.timeout.ms",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "broker.id.generation.enable",
    "listeners",
    "log.dir",
    "log.dirs",
    "max.connections.per.ip.overrides",
    "node.id",
    "ottla.cluster.directory",
    "process.roles",
    "producer.id.expiration.ms",
    "security.inter.broker.protocol",
    "zookeeper.connect",
}

# Fields that the properties of a log's config make sense of.
READ_BY_LOG_CONFIG = {"cleanup_policy": "compact", "message_timestamp_type": "append_time"}


# What the controller reads of a topic's configs; no log needs it.
READ_BY_CONTROLLER = {"unclean_leader_election_enable"}

# What a share group's leader asks the cluster image before it writes dead letters to the topic.
READ_BY_SHARE_GROUPS = {"errors_deadletterqueue_group_enable"}

# These packages read the options of clients, some of which have the same names.
OF_CLIENTS = {"agent", "aio", "client", "console", "spark"}


def read_options() -> set[str]:
    """Every option named in the source outside the tables, and the defaults of topic configs."""
    named = {name for family in SYNONYMS.values() for name, _ in family}
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in {"settings", *OF_CLIENTS}:
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
    # The default of a topic config that is idle itself.
    defaults = {
        name
        for config, family in SYNONYMS.items()
        if TOPIC_CONFIGS[config].standing is Standing.IDLE
        for name, _ in family
    }
    assert (idle & read_options()) - defaults == set()


def test_what_a_topic_honours_is_read() -> None:
    """A topic config that is not idle reaches a log's config, and something reads it there.

    If this fails: read the field, or declare the config with `standing=IDLE`, and its default, too.
    """
    outside = [path for path in ROOT.rglob("*.py") if path.parent.name != "settings"]
    source = "\n".join(path.read_text() for path in outside)
    read = set(re.findall(r"\.([a-z0-9_]+)\b", source)) | READ_BY_LOG_CONFIG.keys()
    assert read >= set(READ_BY_LOG_CONFIG.values())
    honoured = (
        {
            name.replace(".", "_")
            for name, option in TOPIC_CONFIGS.items()
            if option.standing is Standing.HONOURED and not option.internal
        }
        - READ_BY_CONTROLLER
        - READ_BY_SHARE_GROUPS
    )
    fields = set(LogConfig._fields) - {"producer_id_expiration_ms"}
    assert honoured == fields
    assert fields - read == set()
