"""Apache's Java consumer in groups, and Kafka's own tools for groups, on a live Ottla.

One JVM does it all; each test looks at one part of what it said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache import java
from tests.compat.groups import SETTINGS
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("java_groups")]

PROGRAM = Path(__file__).with_name("Groups.java")
ONE_PARTITION = {"offsets.topic.num.partitions": 1}
Said = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the program printed, by its subject."""
    needs.apache()
    data = tmp_path_factory.mktemp("java-groups") / "data"
    with Server(data, settings=SETTINGS | ONE_PARTITION) as server:
        lines = java.run_json(PROGRAM, server.bootstrap, str(data))
    return {line["what"]: line for line in lines}


@pytest.mark.parametrize(
    ("assignor", "name"),
    [
        ("RangeAssignor", "range"),
        ("RoundRobinAssignor", "roundrobin"),
        ("StickyAssignor", "sticky"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    ],
)
def test_two_members_share_a_topic(said: Said, assignor: str, name: str) -> None:
    """Six partitions are three and three, every record is read, and who is left takes over."""
    seen = said[f"sharing {assignor}"]
    assert (seen["half"], seen["members"], seen["assignor"]) == (3, 2, name)
    assert (seen["state"], seen["left"]) == ("Stable", "Empty")


def test_cooperative_members_never_stop(said: Said) -> None:
    """An eager member gives up everything in a rebalance, a cooperative one only what it must."""
    assert said["sharing RangeAssignor"]["emptied"] > 0
    assert said["sharing CooperativeStickyAssignor"]["emptied"] == 0


def test_static_restart_without_a_rebalance(said: Said) -> None:
    """A static member has its partitions again after a restart, and the other one notices none."""
    assert (said["static"]["same"], said["static"]["rebalances"]) == (True, 0)


def test_commits_and_seek(said: Said) -> None:
    """commitSync with a note, commitAsync, committed and seek."""
    found = said["commits"]
    assert (found["sync"], found["note"], found["async"]) == (5, "a note", 9)
    assert (found["error"], found["sought"]) == ("null", "15")


def test_pattern_subscription(said: Said) -> None:
    """A topic made later that fits the pattern is shared out too."""
    assert said["pattern"]["partitions"] == 4


def test_consumer_groups_tool(said: Said) -> None:
    """kafka-consumer-groups lists, describes, resets and deletes."""
    assert {line.split()[0]: line.split()[1] for line in said["list"]["text"].splitlines()[1:]} == {
        "committed": "Empty",
        "static": "Stable",
        "pattern": "Empty",
        **{
            f"group-{kind}Assignor": "Empty"
            for kind in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
        },
    }
    words = said["describe"]["text"].splitlines()[-1].split()
    assert words[:6] == ["committed", "committed", "0", "9", "20", "11"]
    assert "committed:0" in said["members"]["text"]
    assert "The group is not empty" in said["refused"]["text"]
    assert said["after reset"]["offset"] == 3
    assert "Successful" in said["delete offsets"]["text"]
    assert "was successful" in said["deleted"]["text"]
    assert "busy" not in said["left"]["groups"]


def test_dump_tool_reads_the_offsets_topic(said: Said) -> None:
    """kafka-dump-log --offsets-decoder understands every record of ours."""
    text = said["dump"]["text"]
    assert "isvalid: false" not in text
    assert "unknown" not in text.lower()
    assert '"protocol":"cooperative-sticky"' in text
    assert '"offset":5,"leaderEpoch":-1,"metadata":"a note"' in text


def test_formatters_read_the_offsets_topic(said: Said) -> None:
    """The console consumer's formatters show offsets, groups and tombstones."""
    offsets, groups = (
        said[f"{kind}MessageFormatter"]["text"] for kind in ("Offsets", "GroupMetadata")
    )
    assert '"version":4,"data":{"offset":9' in offsets
    assert '"partition":0}},"value":null}' in offsets
    assert '"protocolType":"consumer","generation":2,"protocol":"range"' in groups
    assert '{"group":"busy"}},"value":null}' in groups
