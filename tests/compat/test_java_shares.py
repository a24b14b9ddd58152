"""Apache's share consumer and admin client on a live Ottla (KIP-932).

One JVM does it all; each test looks at one part of what it said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache import java
from tests.apache.kafka import ApacheKafka
from tests.compat.test_share_consumers import SETTINGS
from tests.live import Server

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("java_shares")]

PROGRAM = Path(__file__).with_name("Shares.java")
Said = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What the program printed, by its subject."""
    needs.apache()
    data = tmp_path_factory.mktemp("java-shares") / "data"
    with Server(data, settings=SETTINGS) as server:
        lines = java.run_json(PROGRAM, server.bootstrap)
    return {line["what"]: line for line in lines}


def test_what_is_polled_is_acknowledged(said: Said) -> None:
    """Without explicit acknowledgements every record is delivered once, also to a successor."""
    assert (said["implicit"]["count"], said["implicit"]["different"]) == (20, 20)


def test_accept_release_reject(said: Said) -> None:
    """Only what was released comes again, with a higher delivery count."""
    assert said["explicit"]["again"] == "[1/2, 4/2, 7/2]"


def test_ever_fewer_together_then_alone(said: Said) -> None:
    """Eight records that nobody can process: the fifth and last delivery of each is alone."""
    polls = said["attempts"]["polls"].split(", ")
    last = [each for each in polls if "/5" in each]
    assert last == [f"{offset}/5" for offset in range(8)]
    assert "more" not in said["attempts"]["polls"]


def test_a_lock_expires(said: Said) -> None:
    """Another member gets what one holds for too long, and the delivery counts."""
    assert said["expiry"]["seen"] == "[0/2, 1/2, 2/2]"


def test_a_lock_is_renewed(said: Said) -> None:
    """A member that renews in time keeps its record from the others, and may accept it."""
    assert (said["renewal"]["others"], said["renewal"]["last"]) == (0, "none")


def test_the_mode_record_limit(said: Said) -> None:
    """A poll has no more records than max.poll.records."""
    assert said["exact"]["sizes"] == "[4, 4, 2]"


def test_two_members_of_one_partition(said: Said) -> None:
    """Both get records of it, none twice."""
    found = said["sharing"]
    assert (found["different"], found["total"], found["both"]) == (30, 30, True)


def test_read_committed(said: Said) -> None:
    """Records of aborted transactions are skipped."""
    assert said["committed"]["values"] == "[v0, v2, v4]"


def test_admin(said: Said) -> None:
    """Share groups are described, with their lag, moved to other offsets, emptied and deleted."""
    assert (said["described"]["state"], said["described"]["members"]) == ("Empty", 0)
    assert said["before"]["lag"] == 0
    assert said["moved"]["count"] == 7
    assert said["forgotten"]["partitions"] == 0
    assert said["deleted"]["error"] == "GroupIdNotFoundException"


@pytest.mark.long
def test_as_on_apache_kafka(said: Said, tmp_path: Path) -> None:
    """The same program sees the same on Apache Kafka."""
    settings = {name.replace(".", "_"): str(value) for name, value in SETTINGS.items()}
    with ApacheKafka(tmp_path, **settings) as kafka:
        lines = java.run_json(PROGRAM, kafka.bootstrap)
    assert {line["what"]: line for line in lines} == said
