"""Options of groups and coordinators are refused at the start where Kafka's broker refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.settings import BROKER_OPTIONS, Settings, SettingsError
from tests import needs
from tests.apache import java

PROGRAM = Path(__file__).with_name("ConfigVerdicts.java")
CHECKED = ("group.consumer.", "group.share.", "group.streams.", "share.coordinator.")


def beyond_the_rules() -> list[str]:
    """Each number below its least and above its most, and texts that are none of those known."""
    cases = []
    for name, option in BROKER_OPTIONS.items():
        if name.startswith(CHECKED) and not option.since:
            values = ["-2", "0", "1", "2", "11", "26", "999", "10001", "60001", "2147483648", "x"]
            cases += [f"{name}={value}" for value in values]
    return [each for each in cases if "persister" not in each]


# Rules between several options, and values at both sides of a bound.
TOGETHER = [
    "group.share.session.timeout.ms=5000;group.share.min.session.timeout.ms=5000",
    "group.share.session.timeout.ms=5001;group.share.min.session.timeout.ms=5000",
    "group.consumer.session.timeout.ms=5000;group.consumer.min.session.timeout.ms=5000",
    "group.consumer.heartbeat.interval.ms=15000;group.consumer.session.timeout.ms=45000",
    "group.share.max.share.sessions=199",
    "group.share.max.share.sessions=200",
    "group.share.max.share.sessions=300;group.share.max.size=301",
    "group.share.record.lock.duration.ms=15000;group.share.min.record.lock.duration.ms=15001",
    "group.share.min.delivery.count.limit=4;group.share.delivery.count.limit=3",
    "group.share.min.delivery.count.limit=4;group.share.delivery.count.limit=4",
    "group.share.max.delivery.count.limit=5;group.share.delivery.count.limit=6",
    "group.share.partition.max.record.locks=4001",
    "group.share.partition.max.record.locks=200;group.share.min.partition.max.record.locks=201",
    "group.share.assignment.interval.ms=15001",
    "group.share.assignment.interval.ms=20000;group.share.max.assignment.interval.ms=20000",
    "group.consumer.assignment.interval.ms=10;group.consumer.min.assignment.interval.ms=11",
    "group.consumer.assignors=range",
    "group.consumer.assignors=uniform,sticky",
    "group.consumer.assignors=",
    "group.consumer.assignors=range,range",
    "group.share.assignors=simple",
    "group.share.assignors=simple,simple",
    "group.share.assignors=uniform",
    "group.share.assignors=",
    "group.consumer.migration.policy=Upgrade",
    "group.consumer.migration.policy=never",
    "offsets.topic.compression.codec=4",
    "offsets.topic.compression.codec=5",
    "offsets.commit.timeout.ms=0",
    "group.coordinator.append.linger.ms=-1",
    "group.coordinator.append.linger.ms=-2",
    "group.coordinator.rebalance.protocols=classic",
    "group.coordinator.rebalance.protocols=other",
]


def problem_here(options: str) -> str | None:
    pairs = dict(each.split("=", 1) for each in options.split(";"))
    try:
        Settings.from_properties(pairs)
    except SettingsError as error:
        return str(error)
    return None


@pytest.mark.apache
def test_options_are_refused_where_kafka_refuses_them() -> None:
    """Every option of groups at values inside and outside of its bounds, alone and together."""
    needs.apache()
    cases = beyond_the_rules() + TOGETHER
    verdicts = java.run_json(PROGRAM, *cases)
    assert [each["options"] for each in verdicts] == cases
    other = [
        (each["options"], each["problem"], here)
        for each in verdicts
        if ((here := problem_here(each["options"])) is None) != (each["problem"] is None)
    ]
    assert other == []
    refused = [each for each in verdicts if each["problem"] is not None]
    assert len(cases) / 4 < len(refused) < len(cases)


def test_no_other_persister_is_taken() -> None:
    """Kafka keeps no state of share groups with any other class; here that is refused."""
    name = "group.share.persister.class.name"
    for value in ("", "org.apache.kafka.server.share.persister.NoOpStatePersister"):
        with pytest.raises(SettingsError) as caught:
            Settings.from_properties({name: value})
        assert [each.option for each in caught.value.problems] == [name]
    Settings.from_properties({name: BROKER_OPTIONS[name].default})
