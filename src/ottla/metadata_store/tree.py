"""The metadata tree: small versioned nodes, compare-and-set, ephemeral nodes, watches.

This is the interface; engines implement it (`local.py` keeps the tree in SQLite, `zookeeper.py` in
a ZooKeeper ensemble). Its guarantees are ZooKeeper's and no more, so that every engine can give
them:

- A node has data, a version that every `set` raises by one, and children. Its parent must exist.
- The operations of one session take effect in the order in which they were asked for. It reads
  what it wrote and all that was written before; what others wrote later it may read late (`sync`).
- `multi` is all or nothing, and lighter than MULTI_BYTES_MAX as a whole.
- An ephemeral node lives as long as the session that made it, and has no children.
- A watch fires once, for the first change after it was set, with the path and kind of the change
  but not the new data: the watcher reads again (and may find more than one change). It fires too
  when the connection was lost: then there may be none.

A write that has returned is durable. A write that raised `ConnectionLoss` may or may not have
taken place: only reading again shows it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

# ZooKeeper's jute.maxbuffer is 0xfffff bytes for a whole packet; some of it is left for its frame.
MULTI_BYTES_MAX = 1_000_000
# What an operation costs on the wire beside its path and data: header, ACL, flags, lengths.
OPERATION_OVERHEAD_BYTES = 64
PATH_BYTES_MAX = 1_000
ANY_VERSION = -1

CREATED = "created"
CHANGED = "changed"
DELETED = "deleted"
CHILDREN = "children"


class TreeError(Exception):
    """An operation on the tree that did not take place."""

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{path}: {reason}" if reason else path)
        self.path = path


class NodeExists(TreeError):
    """The node to be created is there already."""


class NoNode(TreeError):
    """The node, or the parent of the node to be created, is not there."""


class BadVersion(TreeError):
    """The node has another version than the one expected."""


class NotEmpty(TreeError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(TreeError):
    """The parent of the node to be created is ephemeral."""


class TooLarge(TreeError):
    """The operations together weigh more than one `multi` may."""


class BadPath(TreeError):
    """The path does not start with '/', ends with one, or has an empty or relative step."""


class SessionExpired(TreeError):
    """The session has ended and its ephemeral nodes are gone: its owner must give up its roles."""


class ConnectionLoss(TreeError):
    """The engine did not answer; whether a write took place is not known."""


class CorruptTree(TreeError):
    """The engine's store is damaged: what it holds cannot be trusted."""


class Stat(NamedTuple):
    """A node's metadata: versions, owner, and the numbers of its writes."""

    version: int
    child_count: int
    ephemeral_owner: int  # session id, 0 for a persistent node
    created: int  # number of the write that made the node; numbers rise through the whole tree
    modified: int  # number of the write that last set its data


class Event(NamedTuple):
    """What a watch is called with: CREATED, CHANGED, DELETED or CHILDREN, and the path."""

    kind: str
    path: str


Watcher: TypeAlias = Callable[[Event], object]


class Create(NamedTuple):
    """Make a node. A sequential one gets ten digits appended that rise under its parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Replace the data of a node that has the version given."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node without children that has the version given."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Do nothing, and let the whole `multi` fail unless the node has the version given."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check
# Create: the path made. Set: the new version. Delete and Check: None.
Result: TypeAlias = str | int | None


class Tree(Protocol):
    """A session with the tree."""

    @property
    def reads_at_once(self) -> bool:
        """Whether `subtree` is one read; else it costs a request for each node and more."""
        ...

    @property
    def session(self) -> int:
        """Id of this session, never 0, never one used before."""
        ...

    def when_expired(self, callback: Callable[[], object]) -> None:
        """Call back once if the session ends in another way than by `close`."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """The path made. Raises NodeExists, NoNode (parent), NoChildrenForEphemerals, TooLarge."""
        ...

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data and stat. Raises NoNode. The watch fires when data change or the node goes."""
        ...

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """Stat or None. The watch fires when the node comes, changes or goes."""
        ...

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Names, sorted. Raises NoNode. The watch fires when a child comes or goes, or the node."""
        ...

    async def subtree(self, path: str) -> dict[str, tuple[bytes, int]]:
        """Data and version of the node and all below it, by path; empty when it is not there.

        Not a snapshot of one moment: an engine may read node by node while others write.
        """
        ...

    async def get_many(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        """Data and version of those of the nodes that are there, by path. Many reads at a time."""
        ...

    async def sync(self) -> None:
        """Return when this session reads all that was written before the call, by anybody."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The new version. Raises NoNode, BadVersion, TooLarge."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All, or none and the error of the first that failed. Raises TooLarge before trying."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go, and later calls raise SessionExpired."""
        ...


class SingleWrites(ABC):
    """The writes of one node, for an engine that has `multi`."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])


def weight(operation: Operation) -> int:
    """What the operation counts for against MULTI_BYTES_MAX."""
    # Every path and every datum of ours is ASCII JSON or close to it: a character is a byte here,
    # and ten thousand of these are counted in one go.
    size = OPERATION_OVERHEAD_BYTES + len(operation.path)
    if isinstance(operation, Create | Set):
        size += len(operation.data)
    return size


def check_weight(operations: Sequence[Operation], root: str = "") -> None:
    """Raise TooLarge unless one `multi` may have these operations, with `root` before each path."""
    total = sum(map(weight, operations)) + len(root) * len(operations)
    if total > MULTI_BYTES_MAX:
        raise TooLarge(operations[0].path, f"{total} bytes, at most {MULTI_BYTES_MAX}")


def check_path(path: str) -> None:
    """Raise BadPath unless the path is absolute and every step of it has a name."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/"):
        raise BadPath(path, "a path starts with '/' and does not end with it")
    if len(path) > PATH_BYTES_MAX:
        raise BadPath(path[:100] + "…", f"a path has at most {PATH_BYTES_MAX} characters")
    for step in path[1:].split("/"):
        if step in ("", ".", "..") or "\x00" in step:
            raise BadPath(path, "every step of a path has a name")


def parent_of(path: str) -> str:
    """The path one step up."""
    return path[: path.rindex("/")] or "/"
