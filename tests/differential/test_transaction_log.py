"""`__transaction_state` and markers: as Kafka's tools read them, and record for record what Kafka
writes for the same requests.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.apache.kafka import ApacheKafka
from tests.apache.messages import Fields
from tests.differential import transactional as steps
from tests.differential.peer import Peer
from tests.live import Server
from tests.log_files.dump import complaints, dump, files

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("dump_log_segments")]

SETTINGS = {
    "node.id": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.num.partitions": 1,
}


def drive(port: int) -> None:
    """Transactions of both generations: committed, aborted, taken over, empty, left open."""
    with Peer(port, "log") as peer:
        topic = peer.create_topic(partitions=2)
        name, group = peer.name("classic"), peer.name("group")
        steps.find(peer, group, 0)
        ids = steps.begin(peer, name)
        for commit in (True, False):
            steps.add(peer, name, ids, topic, 0, 1)
            records = steps.records(ids, 0 if commit else 1)
            peer.quietly("Produce", 9, steps.produce(name, topic, records))
            fields: Fields = {"transactional_id": name, "group_id": group}
            fields |= {"producer_id": ids[0], "producer_epoch": ids[1]}
            peer.quietly("AddOffsetsToTxn", 3, fields)
            ended(peer, name, ids, commit, 3)
        steps.add(peer, name, ids, topic)
        steps.begin(peer, name)
        name = peer.name("bumping")
        ids = steps.begin(peer, name)
        for commit in (True, False):
            place = topic
            peer.quietly("Produce", 12, steps.produce(name, place, steps.records(ids)))
            ids = ended(peer, name, ids, commit, 5)
        ids = ended(peer, name, ids, False, 5)  # nothing written
        peer.quietly("Produce", 12, steps.produce(name, topic, steps.records(ids)))


def ended(peer: Peer, name: str, ids: steps.Ids, commit: bool, version: int) -> steps.Ids:
    answer = peer.ask_until("EndTxn", version, steps.end(name, ids, commit), steps.error_of_end)
    steps.describe(peer, name, "", "CompleteCommit" if commit else "CompleteAbort")
    return steps.bumped(answer, ids)


def payloads(output: str) -> list[tuple[str, Any]]:
    """Each record's key and value, without what the clock says; partitions come in any order."""
    found = []
    for line in output.splitlines():
        if "payload:" not in line:
            continue
        key, value = line[line.index("key: ") + 5 :].split(" payload: ")
        data = json.loads(value)
        topics = data["data"].get("transactionPartitions") or []
        topics.sort(key=lambda topic: topic["topic"])
        for topic in topics:
            topic["partitionIds"].sort()
        for name in ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs"):
            if data["data"][name] > 0:
                data["data"][name] = "now"
        found.append((key, data))
    return found


def markers(output: str) -> list[str]:
    return re.findall(r"endTxnMarker: \w+ coordinatorEpoch: \d+", output)


def test_the_transaction_log_is_kafkas(tmp_path: Path) -> None:
    """Kafka's DumpLogSegments reads ours, and finds what it finds in its own."""
    needs.apache()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        drive(kafka.port)
    with Server(tmp_path / "ottla", settings=SETTINGS) as ottla:
        drive(ottla.port)
    groups = []
    for folder in (kafka.data, tmp_path / "ottla"):
        log = files(folder / "__transaction_state-0", ".log")
        groups.append(["--transaction-log-decoder", "--files", log])
        groups.append(["--print-data-log", "--files", files(folder / "log-topic-0", ".log")])
        groups.append(["--files", files(folder / "log-topic-0", ".txnindex")])
    theirs, their_data, their_index, ours, our_data, our_index = dump(*groups)
    for output in (ours, our_data, our_index):
        assert not complaints(output), complaints(output)
    assert payloads(ours) == payloads(theirs)
    assert len(payloads(ours)) > 20
    assert markers(our_data) == markers(their_data)
    assert "producerId" in our_index
    entries = re.compile(r"version: .*")
    assert entries.findall(our_index) == entries.findall(their_index)
