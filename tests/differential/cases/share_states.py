"""The state of share partitions (KIP-932), as the brokers of Kafka ask the share coordinator."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from typing import Any

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.members import ready
from tests.differential.new_members import make
from tests.differential.peer import PATIENCE_S, Peer

INITIALIZE, READ, WRITE = "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState"
DELETE, SUMMARY = "DeleteShareGroupState", "ReadShareGroupStateSummary"
BUSY = (14, 15, 16)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class State:
    """One share partition, and the coordinator that has its state."""

    def __init__(self, peer: Peer, version: int, api: str) -> None:
        ready(peer)
        self.peer = peer
        self.versions = {api: version}
        self.topic_id = peer.topic_id(make(peer))
        self.group = peer.name("group")
        key = f"{self.group}:{urlsafe_b64encode(self.topic_id).decode().rstrip('=')}:0"
        self.until("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": [key]}, "coordinators")
        self.until(SUMMARY, 0, self.request(leader_epoch=0), "results")

    def until(self, api: str, version: int, fields: Fields, where: str) -> None:
        """Until the coordinator is there and has loaded."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = self.peer.quietly(api, version, fields)[where][0]
            if found.get("partitions"):
                found = found["partitions"][0]
            if found.get("error_code") not in BUSY:
                return
            time.sleep(0.05)
        raise AssertionError(f"{api}: no share coordinator")

    def request(self, index: int = 0, topic_id: bytes | None = None, **partition: Any) -> Fields:
        parts = [{"partition": index, **partition}]
        topic = {"topic_id": self.topic_id if topic_id is None else topic_id, "partitions": parts}
        return {"group_id": self.group, "topics": [topic]}

    def ask(self, api: str, label: str, **fields: Any) -> None:
        version = self.versions.get(api, 0)
        self.peer.ask(api, version, self.request(**fields), label)

    def begin(self, label: str, state_epoch: int = 0, start_offset: int = 0, **more: Any) -> None:
        fields = {"state_epoch": state_epoch, "start_offset": start_offset, **more}
        self.ask(INITIALIZE, label, **fields)

    def read(self, label: str, leader_epoch: int = 0, **more: Any) -> None:
        self.ask(READ, label, leader_epoch=leader_epoch, **more)

    def summary(self, label: str, leader_epoch: int = 0, **more: Any) -> None:
        self.ask(SUMMARY, label, leader_epoch=leader_epoch, **more)

    def write(
        self,
        label: str,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        **more: Any,
    ) -> None:
        said = [
            {"first_offset": a, "last_offset": b, "delivery_state": c, "delivery_count": d}
            for a, b, c, d in batches
        ]
        fields = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "state_batches": said,
            **more,
        }
        if self.versions.get(WRITE, 0) >= 1:
            fields.setdefault("delivery_complete_count", 3)
        self.ask(WRITE, label, **fields)


@case(INITIALIZE)
def begun(peer: Peer, version: int) -> None:
    """A share partition begins, again, with an earlier epoch, and where there is none."""
    state = State(peer, version, INITIALIZE)
    state.begin("first", 1, 5)
    state.summary("first")
    state.begin("again", 1, 7)
    state.summary("again")
    state.begin("an earlier epoch", 0, 9)
    state.begin("nowhere", 2, -1)
    state.summary("nowhere")
    state.begin("partition -1", index=-1)
    state.begin("no such partition", index=9)
    state.begin("unknown topic", topic_id=b"\1" * 16)


@case(READ)
def read(peer: Peer, version: int) -> None:
    """State that nobody began, that somebody began, for an earlier leader than the last."""
    state = State(peer, version, READ)
    state.read("uninitialized")
    state.read("uninitialized, a later leader", 4)
    state.summary("after it was read")
    state.begin("begins", 1, 5)
    state.read("begun", 2)
    state.summary("read by leader 2")
    state.read("an earlier leader", 1)
    state.read("no leader", -1)
    state.write("batches", (5, 6, ACKNOWLEDGED, 1), state_epoch=1, leader_epoch=2, start_offset=5)
    state.read("written", 3)
    state.read("partition -1", index=-1)
    state.read("no such partition", index=9)
    state.read("unknown topic", topic_id=b"\1" * 16)


@case(WRITE)
def written(peer: Peer, version: int) -> None:
    """Batches are merged; earlier leaders and epochs are fenced; nothing without a beginning."""
    state = State(peer, version, WRITE)
    state.write("uninitialized", (0, 4, ACKNOWLEDGED, 1))
    state.summary("uninitialized")
    state.begin("begins", 1, 0)
    state.write("first", (0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1), state_epoch=1)
    state.read("first")
    state.write("overlaps", (3, 6, ARCHIVED, 2), state_epoch=1, leader_epoch=3)
    state.read("overlaps", 3)
    state.write("start moves", state_epoch=1, leader_epoch=3, start_offset=5)
    state.read("start has moved", 3)
    state.write(
        "start stays", (8, 8, ACKNOWLEDGED, 2), state_epoch=1, leader_epoch=3, start_offset=-1
    )
    state.read("start stays", 3)
    state.write("an earlier leader", state_epoch=1, leader_epoch=2, start_offset=5)
    state.write("an earlier epoch", state_epoch=0, leader_epoch=3, start_offset=5)
    state.write(
        "no epochs", (9, 9, ACKNOWLEDGED, 1), state_epoch=-1, leader_epoch=-1, start_offset=5
    )
    state.summary("at last", 3)
    state.write("partition -1", index=-1)
    state.write("no such partition", index=9)
    state.write("unknown topic", topic_id=b"\1" * 16)


@case(SUMMARY)
def summarized(peer: Peer, version: int) -> None:
    """Where a share partition begins, for those that do not lead it."""
    state = State(peer, version, SUMMARY)
    state.summary("uninitialized")
    state.begin("begins", 1, 5)
    state.summary("begun")
    state.read("by leader 3", 3)
    state.summary("an earlier leader", 2)
    state.summary("a later leader", 7)
    state.summary("partition -1", index=-1)
    state.summary("no such partition", index=9)
    state.summary("unknown topic", topic_id=b"\1" * 16)


@case(DELETE)
def deleted(peer: Peer, version: int) -> None:
    """State that is there, that is not, and what is known after."""
    state = State(peer, version, DELETE)
    state.ask(DELETE, "uninitialized")
    state.begin("begins", 1, 5)
    state.ask(DELETE, "begun")
    state.summary("deleted")
    state.read("deleted")
    state.begin("begins again", 0, 2)
    state.summary("begun again")
    state.ask(DELETE, "partition -1", index=-1)
    state.ask(DELETE, "no such partition", index=9)
    state.ask(DELETE, "unknown topic", topic_id=b"\1" * 16)
