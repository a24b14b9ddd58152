"""The directory that the broker processes of one host share, and with it the metadata tree.

    cluster-id          the cluster's id, drawn by the first broker that started here
    controller.lock     locked by the broker that is the controller
    coordination.db     the tree; opened by that broker only
    controller.json     where that broker is reached, written once it is elected

The operating system releases the lock of a process that ends, however it ends, so the next broker
that tries has it at once. A process that is stopped (SIGSTOP) keeps it. The holder therefore sets
the modification time of the lock's file from time to time (`renew`): whoever started the brokers
can see that it has not, and end it. Nothing here depends on that time for safety: two processes
never hold the lock, and the tree is written under the lock only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata_store.tree import ConnectionLoss, CorruptTree
from ottla.seams.disk import AlreadyLocked

if TYPE_CHECKING:
    from ottla.seams.disk import Disk, Lock

TREE_FILE = "coordination.db"
LOCK_FILE = "controller.lock"
ADDRESS_FILE = "controller.json"
CLUSTER_ID_FILE = "cluster-id"
CLUSTER_ID_LOCK_FILE = "cluster-id.lock"
VERSION = 1


class ControllerAddress(NamedTuple):
    """Where the controller is reached, which process it is, and since which epoch it is one."""

    node_id: int
    host: str
    port: int
    incarnation: str
    epoch: int


class SharedDirectory:
    """One broker's view of the directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        self._disk = disk
        self._lock: Lock | None = None

    def prepare(self) -> None:
        """Make the directory if need be. Raises ConnectionLoss with a sentence for an operator."""
        try:
            self._disk.mkdir(self.path)
        except OSError as error:
            raise self._cannot("made", error) from None

    def cluster_id(self, drawn: str) -> str | None:
        """The cluster's id: `drawn` if there was none. None: another broker is writing it now."""
        path = f"{self.path}/{CLUSTER_ID_FILE}"
        try:
            if self._disk.exists(path):
                return self._read_cluster_id(path)
            lock = self._disk.lock(f"{self.path}/{CLUSTER_ID_LOCK_FILE}")
        except AlreadyLocked:
            return None
        except OSError as error:
            raise self._cannot("used", error) from None
        try:
            if not self._disk.exists(path):
                self._disk.write_atomically(path, f"{drawn}\n".encode(), sync=True)
            return self._read_cluster_id(path)
        except OSError as error:
            raise self._cannot("written", error) from None
        finally:
            lock.release()

    def _read_cluster_id(self, path: str) -> str:
        text = self._disk.read(path).decode(errors="replace").strip()
        if not text:
            raise CorruptTree(
                path,
                "the cluster's id is missing; write the cluster.id of a broker's meta.properties "
                "into the file",
            )
        return text

    # The controller's lock

    @property
    def held(self) -> bool:
        """Whether this broker has the lock."""
        return self._lock is not None

    def acquire(self) -> bool:
        """Take the lock, if no other process has it. Raises ConnectionLoss."""
        if self._lock is not None:
            return True
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except AlreadyLocked:
            return False
        except OSError as error:
            raise self._cannot("used", error) from None
        return True

    def renew(self, now_ms: int) -> None:
        """Show that the holder of the lock runs. Raises OSError."""
        if self._lock is not None:
            self._disk.set_modified_ms(f"{self.path}/{LOCK_FILE}", now_ms)

    def release(self) -> None:
        """Give the lock back, after the tree was closed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    @property
    def tree_path(self) -> str:
        """The file of the tree, for the holder of the lock."""
        return f"{self.path}/{TREE_FILE}"

    # The controller's address

    def publish(self, address: ControllerAddress) -> None:
        """Tell the others where the controller is: for the holder of the lock. Raises OSError.

        Not synced: after a power cut no process is there any more.
        """
        data = json.dumps({"version": VERSION, **address._asdict()}).encode() + b"\n"
        self._disk.write_atomically(f"{self.path}/{ADDRESS_FILE}", data, sync=False)

    def publish_again(self, address: ControllerAddress) -> None:
        """Publish what the holder of the lock published, if somebody has removed or damaged it.

        Not over the address of a later controller. Raises OSError.
        """
        found = self.address()
        if found is None or found.epoch < address.epoch:
            self.publish(address)

    @property
    def has_tree(self) -> bool:
        """Whether the file of the tree is there: one that was removed is written to in vain."""
        return self._disk.exists(self.tree_path)

    def address(self) -> ControllerAddress | None:
        """What was published last; None if nothing was, or what is there cannot be read.

        It may be the address of a process that is gone: the next holder publishes its own.
        """
        try:
            found = json.loads(self._disk.read(f"{self.path}/{ADDRESS_FILE}"))
            return ControllerAddress(
                node_id=int(found["node_id"]),
                host=str(found["host"]),
                port=int(found["port"]),
                incarnation=str(found["incarnation"]),
                epoch=int(found["epoch"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _cannot(self, verb: str, error: OSError) -> ConnectionLoss:
        return ConnectionLoss(
            self.path,
            f"the brokers' shared directory cannot be {verb}: {error.strerror or error}; let this "
            "user read and write it, or choose another with ottla.cluster.directory",
        )
