"""Apache's Java consumer with group.protocol=consumer, and Kafka's own tools, on a live Ottla.

One JVM does it all; each test looks at one part of what it said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache import java
from tests.compat import groups, test_new_groups
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("java_new_groups")]

PROGRAM = Path(__file__).with_name("NewGroups.java")
SETTINGS = groups.SETTINGS | test_new_groups.SETTINGS | {"offsets.topic.num.partitions": 1}
Said = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the program printed, by its subject."""
    needs.apache()
    data = tmp_path_factory.mktemp("java-new-groups") / "data"
    with Server(data, settings=SETTINGS) as server:
        lines = java.run_json(PROGRAM, server.bootstrap, str(data))
    return {line["what"]: line for line in lines}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_two_members_share_a_topic(said: Said, assignor: str) -> None:
    """Six partitions are three and three, the first gives up only those, every record is read."""
    seen = said[f"sharing {assignor}"]
    assert (seen["half"], seen["members"], seen["assignor"]) == (3, 2, assignor)
    assert (seen["state"], seen["type"], seen["left"]) == ("Stable", "Consumer", "Empty")
    assert seen["only"]
    assert seen["epochs"]


def test_static_restart_takes_nothing_from_others(said: Said) -> None:
    """A static member has its partitions again after a restart, and the other one keeps its own."""
    assert (said["static"]["same"], said["static"]["taken"]) == (True, 0)


def test_commits(said: Said) -> None:
    """A member commits with its epoch, and the next one goes on there."""
    found = said["commits"]
    assert (found["sync"], found["note"], found["next"]) == (5, "a note", "5")


def test_pattern_is_resolved_by_the_broker(said: Said) -> None:
    """Both topics that fit are read, also the one that was made later."""
    words = said["pattern"]["text"].splitlines()[-1].split()
    assert (words[0], words[-1]) == ("pattern", "4")


def test_group_moves_member_by_member(said: Said) -> None:
    """From classic to consumer and back, with both in one group: each record is read, once."""
    seen = said["migration"]
    assert seen["states"].split(", ") == [
        "+classic Classic 1 0",
        "+classic Classic 2 0",
        "+consumer Consumer 3 1",
        "-classic Consumer 2 1",
        "+consumer Consumer 3 2",
        "-classic Consumer 2 2",
        "+classic Consumer 3 2",
        "-consumer Consumer 2 1",
        "+classic Consumer 3 1",
        "-consumer Classic 2 0",
    ]
    assert (seen["distinct"], seen["read"], seen["lost"]) == (seen["sent"], seen["sent"], 0)


def test_consumer_groups_tool(said: Said) -> None:
    """kafka-consumer-groups lists, describes, resets and deletes groups of the new protocol."""
    listed = {line.split()[0]: line.split()[1:] for line in said["list"]["text"].splitlines()[1:]}
    assert listed["busy"] == ["Consumer", "Stable"]
    assert listed["moving"] == ["Classic", "Empty"]
    offsets = said["describe --offsets"]["text"].splitlines()[-1].split()
    assert offsets[:7] == ["busy", "committed", "0", "-", "-", "20", "-"]
    members = said["describe --members"]["text"].split()
    assert members[-5:] == ["1", "2", "committed:0", "2", "committed:0"]
    assert said["describe --state"]["text"].split()[-5:] == ["uniform", "Stable", "2", "2", "1"]
    assert "The group is not empty" in said["refused"]["text"]
    assert "only be reset if the group 'busy' is inactive" in said["no reset"]["text"]
    assert said["config"]["value"] == "50000"
    assert said["reset"]["text"].split()[-4:] == ["busy", "committed", "0", "3"]
    assert "was successful" in said["deleted"]["text"]


def test_dump_tool_reads_the_offsets_topic(said: Said) -> None:
    """kafka-dump-log --offsets-decoder understands every record of ours."""
    text = said["dump"]["text"]
    assert "isvalid: false" not in text
    assert "unknown" not in text.lower()
    for kind in (3, 5, 6, 7, 8, 16):
        assert f'key: {{"type":"{kind}"' in text
