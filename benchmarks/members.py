"""Members of groups over bare sockets: many at a time, each step for all of them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from benchmarks import raw
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.apis import API
from ottla.wire.header import start_request
from ottla.wire.schema import reader, writer

BY_REQUEST = {f"{api.name}Request": api for api in API.values()}
VERSIONS = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "FindCoordinator": 2}
VERSIONS |= {"OffsetFetch": 8, "Fetch": 11, "ConsumerGroupHeartbeat": 1}
VERSIONS |= {"ShareGroupHeartbeat": 1, "ShareFetch": 2}
SESSION_MS = 60_000
# A subscription of version 0 to nothing, without user data.
METADATA = struct.pack(">hii", 0, 0, -1)
LOADING, UNAVAILABLE, NOT_COORDINATOR = 14, 15, 16


def encode(request: Any) -> bytes:
    """The whole frame."""
    api = BY_REQUEST[type(request).__name__]
    version = VERSIONS[api.name]
    out = start_request(api.key, version, 7, "bench")
    writer(type(request), version)(request, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def decode(sock: socket.socket, name: str) -> Any:
    """The next answer of this API."""
    api = BY_REQUEST[f"{name}Request"]
    version = VERSIONS[name]
    position = 5 if api.flexible_response(version) else 4
    return reader(api.response, version)(memoryview(raw.receive(sock)), position)[0]


def ask(sock: socket.socket, request: Any) -> Any:
    sock.sendall(encode(request))
    return decode(sock, type(request).__name__.removesuffix("Request"))


def wait_for_coordinator(port: int, *groups: str) -> None:
    """Until every group's coordinator is found and has loaded."""
    with raw.connect(port) as sock:
        for group in groups:
            while ask(sock, FindCoordinatorRequest(key=group)).error_code:
                time.sleep(0.002)
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
            while ask(sock, asked).groups[0].error_code:
                time.sleep(0.002)


def accepted_connection(port: int) -> socket.socket:
    """A connection that the broker has accepted: its listen backlog is limited."""
    sock = raw.connect(port)
    sock.sendall(raw.API_VERSIONS_FRAME)
    raw.receive(sock)
    return sock


class Member:
    """One member with a connection of its own."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.sock = accepted_connection(port)
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        )

    def joined(self) -> None:
        answer = decode(self.sock, "JoinGroup")
        assert answer.error_code in (0, 79), answer
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.others = [each.member_id for each in answer.members]

    def sync_request(self) -> SyncGroupRequest:
        assignments = [
            SyncGroupRequestAssignment(member_id=each, assignment=b"share") for each in self.others
        ]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=assignments,
        )

    def synced(self) -> None:
        answer = decode(self.sock, "SyncGroup")
        assert answer.error_code == 0, answer

    def heartbeat(self) -> bytes:
        return encode(
            HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id
            )
        )


def together(members: list[Member], request: Callable[[Member], Any], answered: Any) -> None:
    """All members send their request, then all receive the response."""
    for member in members:
        member.sock.sendall(encode(request(member)))
    for member in members:
        answered(member)


def enter(members: list[Member]) -> None:
    """Join and sync until the group (or several) is stable."""
    together(members, Member.join_request, Member.joined)
    together(members, Member.join_request, Member.joined)
    together(members, Member.sync_request, Member.synced)


def first_records(members: list[Member], topic: str) -> None:
    """All members fetch the group's offset, then one partition from its beginning."""
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]

    def position(member: Member) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=member.group, topics=wanted)]
        )

    def fetch(_: Member) -> FetchRequest:
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )

    together(members, position, lambda member: decode(member.sock, "OffsetFetch"))
    together(members, fetch, lambda member: raw.receive(member.sock))
