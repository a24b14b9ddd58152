"""`ottla cluster adopt`: a single broker's data become those of a cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.cluster_adopt import adopt
from ottla.cli.failure import Failure
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.seams.disk import RealDisk
from ottla.supervisor.state import read_state
from tests.cli.test_cluster_up import supervised
from tests.live import Server

META = """\
cluster.id=AAAAAAAAAAAAAAAAAAAAAA
directory.id=BBBBBBBBBBBBBBBBBBBBBB
node.id={}
version=1
"""


def single(path: Path, node_id: int = 1) -> Path:
    """The data directory of a broker that was killed: its tree has a write-ahead log."""
    path.mkdir()
    (path / "meta.properties").write_text(META.format(node_id))
    for name in ("coordination.db", "coordination.db-wal"):
        (path / name).write_text(name)
    (path / "t-0").mkdir()
    return path


def run(source: Path, cluster: Path) -> str:
    done = CliRunner().invoke(adopt, [str(source), "--dir", str(cluster)], catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.output


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.name != ".lock"}


def test_the_directory_becomes_that_of_a_broker_and_its_tree_the_shared_one(
    tmp_path: Path,
) -> None:
    """With what a crash left in the tree's log. Nothing is left where it was."""
    source, cluster = single(tmp_path / "old", node_id=2), tmp_path / "new"
    said = run(source, cluster)
    assert f"broker 2 of the cluster in {cluster} has the data of {source}" in said
    assert f"ottla cluster up --dir {cluster} --brokers 3" in said
    assert not source.exists()
    assert files(cluster) == {
        "metadata",
        "metadata/cluster-id",
        "metadata/coordination.db",
        "metadata/coordination.db-wal",
        "broker-2",
        "broker-2/meta.properties",
        "broker-2/t-0",
    }
    assert (cluster / "metadata" / "cluster-id").read_text() == "AAAAAAAAAAAAAAAAAAAAAA\n"


def test_a_command_that_was_cut_short_is_given_again(tmp_path: Path) -> None:
    """The tree is in its new place, the data are not."""
    source, cluster = single(tmp_path / "old"), tmp_path / "new"
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    run(source, cluster)
    shutil.rmtree(cluster / "broker-1")
    for name in ("coordination.db", "coordination.db-wal"):
        (copy / name).unlink()
    run(copy, cluster)
    assert (cluster / "broker-1" / "t-0").is_dir()


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ("no meta", "it has no meta.properties"),
        ("no tree", "it was not a cluster of its own"),
        ("several", "has several data directories"),
        ("node 0", "numbered from 1"),
        ("taken", "there is a cluster in"),
        ("other metadata", "there is a cluster in"),
        ("in use", "is in use by another server"),
        ("nowhere", "there is no directory"),
    ],
)
def test_what_cannot_be_adopted_is_left_as_it_is(tmp_path: Path, change: str, fact: str) -> None:
    """One sentence, and nothing is moved."""
    source, cluster = single(tmp_path / "old", int(change != "node 0")), tmp_path / "new"
    lock = None
    if change == "no meta":
        (source / "meta.properties").unlink()
    elif change == "no tree":
        (source / "coordination.db").unlink()
    elif change == "several":
        noted = {"version": 0, "directories": {"a": "/1", "b": "/2"}}
        (source / "metadata-checkpoint").write_text(json.dumps(noted))
    elif change == "taken":
        (cluster / "broker-1").mkdir(parents=True)
    elif change == "other metadata":
        (cluster / "metadata").mkdir(parents=True)
        (cluster / "metadata" / "cluster-id").write_text("another\n")
    elif change == "in use":
        lock = RealDisk().lock(str(source / ".lock"))
    elif change == "nowhere":
        shutil.rmtree(source)
    before = files(source)
    with pytest.raises(Failure) as refused:
        run(source, cluster)
    assert fact in refused.value.fact
    assert files(source) == before
    if lock is not None:
        lock.release()


def test_a_broker_that_was_killed_goes_on_in_a_cluster(tmp_path: Path) -> None:
    """With its records, and the same cluster."""
    cluster = tmp_path / "cluster"
    with Server(tmp_path / "single") as server:
        with Producer(bootstrap_servers=server.bootstrap) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number)
            producer.flush()
        server.kill()
    run(tmp_path / "single", cluster)
    with supervised(cluster):
        state = read_state(cluster)
        assert state is not None
        with Consumer(
            "t", bootstrap_servers=state.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            found = [record.value for _, record in zip(range(10), consumer, strict=False)]
    assert found == [b"%d" % number for number in range(10)]
