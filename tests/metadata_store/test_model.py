"""The local tree beside a simple model: a dictionary, driven by hypothesis."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.metadata_store import local_store
from ottla.metadata_store.local import LocalEngine, LocalTree
from ottla.metadata_store.tree import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    TreeError,
)
from ottla.seams.background import InlineBackground
from ottla.seams.disk import RealDisk

NAMES = st.sampled_from(["a", "b", "a-", "0"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda steps: "/" + "/".join(steps))
DATA = st.binary(max_size=4)
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.just(False)),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


class Model:
    """Path to (data, version, owner); a multi works on a copy."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {"/": (b"", 0, 0)}

    def multi(self, operations: list[Operation], session: int) -> list[Result]:
        draft = dict(self.nodes)
        results = [self.run(draft, operation, session) for operation in operations]
        self.nodes = draft
        return results

    def run(
        self, nodes: dict[str, tuple[bytes, int, int]], operation: Operation, session: int
    ) -> Result:
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0] or "/"
            if parent not in nodes:
                raise NoNode(path)
            if nodes[parent][2]:
                raise NoChildrenForEphemerals(path)
            if path in nodes:
                raise NodeExists(path)
            nodes[path] = (operation.data, 0, session if operation.ephemeral else 0)
            return path
        if path not in nodes:
            raise NoNode(path)
        _, version, owner = nodes[path]
        if operation.version not in (ANY_VERSION, version):
            raise BadVersion(path)
        if isinstance(operation, Set):
            nodes[path] = (operation.data, version + 1, owner)
            return version + 1
        if isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in nodes):
                raise NotEmpty(path)
            del nodes[path]
        return None

    def end_session(self, session: int) -> None:
        self.nodes = {p: node for p, node in self.nodes.items() if node[2] != session}


class TreeAndModel(RuleBasedStateMachine):
    """Whatever is done to both, both are the same afterwards."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.model = Model()
        self.open()

    def open(self) -> None:
        path = str(Path(self.directory.name) / "tree")
        self.engine: LocalEngine = self.runner.run(
            LocalEngine.open(RealDisk(), path, InlineBackground())
        )
        self.tree: LocalTree = self.runner.run(self.engine.connect())

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def write(self, operations: list[Operation]) -> None:
        expected: list[Result] | type[TreeError]
        try:
            expected = self.model.multi(operations, self.tree.session)
        except TreeError as error:
            expected = type(error)
        try:
            found: list[Result] | type[TreeError] = self.runner.run(self.tree.multi(operations))
        except TreeError as error:
            found = type(error)
        assert found == expected

    @rule()
    def end_session(self) -> None:
        self.model.end_session(self.tree.session)
        self.runner.run(self.tree.close())
        self.tree = self.runner.run(self.engine.connect())

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.model.end_session(self.tree.session)
        if clean:
            self.runner.run(self.tree.close())
            self.runner.run(self.engine.close())
        self.open()

    @rule(path=PATHS)
    def look(self, path: str) -> None:
        below = {p for p in self.model.nodes if p == path or p.startswith(path + "/")}
        assert set(self.runner.run(self.tree.subtree(path))) == below
        names = sorted({p[len(path) + 1 :].split("/")[0] for p in below if p != path})
        if path in below:
            assert self.runner.run(self.tree.children(path)) == names
            assert self.runner.run(self.tree.get(path))[1].child_count == len(names)

    @invariant()
    def same(self) -> None:
        if hasattr(self, "tree"):
            found = self.runner.run(self.tree.subtree("/"))
            assert found == {p: (data, v) for p, (data, v, _) in self.model.nodes.items()}

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.engine.store.close()
            self.runner.close()
            self.directory.cleanup()


class TestTreeAndModel(TreeAndModel.TestCase):  # type: ignore[misc]
    """Without fsync, which is not what is compared here and takes most of the time."""

    @pytest.fixture(autouse=True)
    def without_fsync(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local_store, "SYNCHRONOUS", "OFF")


TestTreeAndModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
