"""Clusters that never ran: a picture of any size, and the console's parts around it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from starlette.applications import Starlette
from starlette.testclient import TestClient

from ottla.client.admin import Admin
from ottla.console.access.middleware import protect
from ottla.console.access.open import EVERYBODY, OpenAccess
from ottla.console.access.permissions import Principal
from ottla.console.app import create_app
from ottla.console.context import Console
from ottla.console.picture import (
    BrokerPicture,
    ClusterPicture,
    GroupPicture,
    LagPicture,
    LogDirPicture,
    MemberPicture,
    PartitionPicture,
    PipelinePicture,
    Problem,
    RequestPicture,
    TopicPicture,
    TransactionPicture,
)
from ottla.console.series import Measure, Point, Sample, Series, SeriesKey

TAKEN_MS = 1_790_000_000_000
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;{{7*7}}"


class FakeHistory:
    """A history that draws the same slope for every series."""

    def __init__(self) -> None:
        self.asked: list[SeriesKey] = []

    def append(self, samples: Sequence[Sample]) -> None:
        raise AssertionError("pages do not write history")

    def read(self, key: SeriesKey, from_ms: int, to_ms: int, points_max: int = 400) -> Series:
        self.asked.append(key)
        step = max(1, (to_ms - from_ms) // 10)
        return Series(
            step,
            [Point(from_ms + each * step, each, each - 0.5, each + 0.5) for each in range(10)],
        )

    def subjects(self, cluster: str, measure: Measure) -> list[tuple[str, str]]:
        return []


class FakeCluster:
    """A cluster whose picture is given; its admin is whatever the test hands in."""

    def __init__(self, picture: ClusterPicture, admin: object | None = None) -> None:
        self.picture = picture
        self.refreshed = threading.Event()
        self._admin = admin

    @property
    def name(self) -> str:
        return self.picture.name

    @property
    def client_properties(self) -> Mapping[str, Any]:
        return {"bootstrap_servers": "127.0.0.1:1"}

    def admin(self) -> Admin:
        assert self._admin is not None, "this page should not ask the cluster"
        return cast(Admin, self._admin)

    def refresh(self) -> None:
        self.picture = replace(self.picture)
        self.refreshed.set()


def topic(name: str, partitions: int = 3, brokers: int = 3, seed: int = 1) -> TopicPicture:
    copies = min(3, brokers)
    return TopicPicture(
        name=name,
        topic_id="AAAAAAAAAAAAAAAAAAAAAA",
        internal=name.startswith("__"),
        partitions=tuple(
            PartitionPicture(
                partition=index,
                leader=(seed + index) % brokers,
                leader_epoch=seed % 7,
                replicas=tuple((seed + index + each) % brokers for each in range(copies)),
                isr=tuple((seed + index + each) % brokers for each in range(copies)),
                start_offset=seed,
                end_offset=seed * 1000 + index * 10,
                size_bytes=seed * 5000 + index,
            )
            for index in range(partitions)
        ),
        records=seed * 999,
        size_bytes=seed * 15_000,
        records_in_rate=float(seed % 50),
        bytes_in_rate=float(seed % 50) * 120,
        bytes_out_rate=float(seed % 30) * 120,
    )


def group(name: str, of: str, partitions: int = 3, seed: int = 1) -> GroupPicture:
    assigned = tuple((of, each) for each in range(partitions))
    return GroupPicture(
        group_id=name,
        kind="classic",
        state="Stable",
        protocol="range",
        coordinator=0,
        members=(MemberPicture(f"{name}-member-1", None, "client", "/127.0.0.1", assigned),),
        lags=tuple(
            LagPicture(of, each, 100, seed * each, seed * each * 10, f"{name}-member-1")
            for each in range(partitions)
        ),
        lag=seed * 3,
        lag_ms=seed * 20,
    )


def picture(
    topics: int = 5, groups: int = 3, partitions: int = 3, brokers: int = 3, name: str = "main"
) -> ClusterPicture:
    return ClusterPicture(
        name=name,
        taken_ms=TAKEN_MS,
        cluster_id="cluster-of-pictures",
        controller_id=0,
        software="Ottla 0.1",
        brokers=tuple(
            BrokerPicture(
                node_id=each,
                host="127.0.0.1",
                port=9092 + each,
                rack=f"rack-{each}",
                controller=each == 0,
                up=True,
                version="0.1",
                leaders=topics,
                replicas=topics * partitions,
                log_dirs=(LogDirPicture("/data", None, 10, 1 << 30, 1 << 40, 1 << 39),),
                requests=(RequestPicture("Produce", 12.5, 1.5, 9.0),),
                connections=12,
                bytes_in_rate=1e6,
                bytes_out_rate=2e6,
                cpu_cores=0.4,
                memory_bytes=1 << 28,
                metrics_age_ms=1000,
            )
            for each in range(brokers)
        ),
        topics={
            f"topic-{each:04}": topic(f"topic-{each:04}", partitions, brokers, each + 1)
            for each in range(topics)
        },
        groups={
            f"group-{each:03}": group(
                f"group-{each:03}", f"topic-{each % max(1, topics):04}", partitions, each + 1
            )
            for each in range(groups)
        },
        transactions=(
            TransactionPicture(
                "payments-1", 1000, "Ongoing", 0, TAKEN_MS - 9_000, 60_000, (("topic-0000", 1),)
            ),
        ),
        pipelines=(
            PipelinePicture(
                "orders-to-lake", "running", TAKEN_MS, 120.0, 30, 250.0, TAKEN_MS - 5_000,
                ("topic-0000",), ("lake",), "topic-0001", None,
            ),
        ),
        problems=(Problem("broker 2", "its log directories are not known", TAKEN_MS - 60_000),),
        bytes_in_rate=3e6,
        bytes_out_rate=6e6,
        records_in_rate=1234.5,
    )  # fmt: skip


def hostile_picture() -> ClusterPicture:
    """A cluster of which everything that has a name is named by markup."""
    one = topic(HOSTILE)
    return ClusterPicture(
        name="main",
        taken_ms=TAKEN_MS,
        cluster_id=HOSTILE,
        controller_id=0,
        software=HOSTILE,
        brokers=(
            BrokerPicture(
                node_id=0, host=HOSTILE, port=9092, rack=HOSTILE, controller=True, up=True,
                version=HOSTILE, log_dirs=(LogDirPicture(HOSTILE, HOSTILE, 1, 1, None, None),),
                requests=(RequestPicture(HOSTILE, 1.0, 1.0, 1.0),),
            ),
        ),
        topics={HOSTILE: one},
        groups={
            HOSTILE: GroupPicture(
                HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0,
                (MemberPicture(HOSTILE, HOSTILE, HOSTILE, HOSTILE, ((HOSTILE, 0),)),),
                (LagPicture(HOSTILE, 0, 1, 1, 1, HOSTILE, HOSTILE),), 1, 1,
            )
        },
        transactions=(TransactionPicture(HOSTILE, 1, HOSTILE, 0, 1, 1, ((HOSTILE, 0),)),),
        pipelines=(
            PipelinePicture(
                HOSTILE, HOSTILE, 1, 1.0, 1, 1.0, 1, (HOSTILE,), (HOSTILE,), HOSTILE, HOSTILE
            ),
        ),
        problems=(Problem(HOSTILE, HOSTILE, 1),),
    )  # fmt: skip


class Browser(TestClient):
    """A client of the whole application behind its checks, as one principal."""

    __test__ = False

    def __init__(
        self,
        app: Starlette,
        cluster: FakeCluster,
        history: FakeHistory,
        principal: Principal = EVERYBODY,
    ) -> None:
        self.access = OpenAccess(principal)
        self.cluster, self.fake_history, self.application = cluster, history, app
        super().__init__(
            protect(app, self.access),
            base_url="http://localhost:8084",
            raise_server_exceptions=False,
        )

    def submit(self, address: str, fields: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Send a form with the token of the session."""
        csrf = self.access.anonymous_csrf(cast(Any, None))[0]
        return self.post(address, data={**(fields or {}), "csrf": csrf}, **options)


def application(
    of: ClusterPicture, admin: object | None = None, parts: Sequence[str] = ("web",), **options: Any
) -> tuple[Starlette, FakeCluster, FakeHistory]:
    cluster, history = FakeCluster(of, admin), FakeHistory()
    console = Console({of.name: cluster}, history)
    return create_app(console, parts=parts, **options), cluster, history


def browser(
    of: ClusterPicture,
    admin: object | None = None,
    principal: Principal = EVERYBODY,
    **options: Any,
) -> Browser:
    """A client of the pages alone, without login."""
    return Browser(*application(of, admin, **options), principal)
