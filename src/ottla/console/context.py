"""What all parts of the console share: the clusters, the history, and who watches.

`app.py` makes one `Console` and hands it to each package's `routes(console)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ottla.client.admin import Admin

from .access.guard import Access
from .picture import ClusterPicture
from .series import History

if TYPE_CHECKING:
    from .alerts.service import AlertService
    from .data.schemas import Schemas


class Cluster(Protocol):
    """One cluster that the console shows."""

    @property
    def name(self) -> str: ...

    @property
    def client_properties(self) -> Mapping[str, Any]:
        """Options for `ottla.Producer`, `Consumer` and `Admin`, bootstrap_servers among them."""

    @property
    def picture(self) -> ClusterPicture:
        """The newest; never waits."""

    def admin(self) -> Admin:
        """Shared by all threads. Its calls wait for the cluster: not on the event loop."""

    def refresh(self) -> None:
        """Ask for a new picture soon, after something was changed."""


@dataclass(frozen=True, slots=True)
class Console:
    clusters: Mapping[str, Cluster]
    history: History
    read_only: bool = False
    access: Access | None = None  # None: open to everybody who reaches the address
    alerts: AlertService | None = None
    schemas: Schemas | None = None
    shared: dict[str, Any] = field(default_factory=dict)  # what parts make once and share
