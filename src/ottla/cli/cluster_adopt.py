"""`ottla cluster adopt`: the data of a broker that was a cluster of its own, in a new cluster.

Nothing is copied or converted: the data directory becomes that of one of the brokers, and its
metadata tree, with topics, configs and epochs, the one that the brokers share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.cluster_processes import directory_option
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.log.checkpoints import MetaProperties

# Of SQLite: what is not in the file itself yet after a crash.
TREE_SUFFIXES = ("", "-wal", "-shm")
METADATA_CHECKPOINT = "metadata-checkpoint"


@click.command()
@click.argument("data", metavar="DATA-DIR")
@directory_option
def adopt(data: str, directory: str) -> None:
    """Begin a cluster with the data of a single broker, which must be stopped.

    DATA-DIR, its data directory, is moved into that of the cluster, on the same file system. Its
    topics keep their records, configs and committed offsets, and have one replica each, until more
    are added by a reassignment.
    """
    source, path = Path(data).absolute(), Path(directory).absolute()
    if not source.is_dir():
        raise Failure(f"there is no directory {source}", "ottla cluster adopt DATA-DIR")
    with locked(source) as meta:
        node_id = take_over(source, path, meta)
    click.echo(f"broker {node_id} of the cluster in {path} has the data of {source}")
    click.echo(f"start it: ottla cluster up --dir {path} --brokers {max(3, node_id)}")
    click.echo(
        "add replicas: ottla reassignments plan TOPIC… --brokers 1,2,3 --replication-factor 3 "
        "| ottla reassignments start -"
    )
    click.echo("then require two of them: ottla configs set brokers min.insync.replicas=2")


@contextmanager
def locked(source: Path) -> Iterator[MetaProperties]:
    """What `meta.properties` says; no broker uses the directory meanwhile."""
    from ottla.log.directories import DirectoryProblem, open_directories
    from ottla.seams.disk import RealDisk

    try:
        (opened,) = open_directories(RealDisk(), [str(source)])
    except DirectoryProblem as problem:
        raise Failure(str(problem), f"stop the broker that has {source}") from None
    try:
        if opened.meta is None:
            raise Failure(
                f"{source} is no data directory of a broker: it has no meta.properties",
                "the directory that ottla server --data-dir had",
            )
        yield opened.meta
    finally:
        opened.release()


def take_over(source: Path, path: Path, meta: MetaProperties) -> int:
    """Move what the broker had; the number of the broker that has it. Raises Failure.

    The tree goes first: without it the directory is one that a broker of its own brings back, with
    it in its place the command can be given again.
    """
    from ottla.metadata_store.shared import CLUSTER_ID_FILE, TREE_FILE
    from ottla.supervisor.plan import BROKERS_MAX, METADATA_DIRECTORY, STATE_FILE, broker_data

    metadata, target = path / METADATA_DIRECTORY, broker_data(path, meta.node_id)
    if (path / STATE_FILE).exists() or target.exists():
        raise Failure(f"there is a cluster in {path} already", "another directory with --dir")
    if not 1 <= meta.node_id <= BROKERS_MAX:
        raise Failure(
            f"{source} belongs to node {meta.node_id}; brokers of a cluster on one host are "
            f"numbered from 1, up to {BROKERS_MAX}"
        )
    if len(noted_directories(source)) > 1:
        raise Failure(
            f"the broker of {source} has several data directories",
            "bring its partitions into one of them first: kafka-reassign-partitions.sh",
        )
    begun = is_of(metadata / CLUSTER_ID_FILE, meta.cluster_id) and (metadata / TREE_FILE).exists()
    if not begun and not (source / TREE_FILE).exists():
        raise Failure(
            f"{source} has no metadata tree: it was not a cluster of its own",
            f"ottla server --data-dir {source}, once, if it comes from Apache Kafka",
        )
    if metadata.exists() and not is_of(metadata / CLUSTER_ID_FILE, meta.cluster_id):
        raise Failure(f"there is a cluster in {path} already", "another directory with --dir")
    try:
        metadata.mkdir(parents=True, exist_ok=True)
        if os.stat(path).st_dev != os.stat(source).st_dev:
            raise Failure(
                f"{path} is on another file system than {source}",
                "a directory of the same one, with --dir",
            )
        (metadata / CLUSTER_ID_FILE).write_text(f"{meta.cluster_id}\n")
        for suffix in reversed(TREE_SUFFIXES):
            if (source / f"{TREE_FILE}{suffix}").exists():
                os.rename(source / f"{TREE_FILE}{suffix}", metadata / f"{TREE_FILE}{suffix}")
        os.rename(source, target)
    except OSError as error:
        raise Failure(
            f"{source} cannot be moved to {path}: {error.strerror or error}",
            "give the command again when that is mended",
        ) from None
    return meta.node_id


def is_of(file: Path, cluster_id: str) -> bool:
    """Whether the file has this cluster id."""
    return file.is_file() and file.read_text().strip() == cluster_id


def noted_directories(source: Path) -> list[str]:
    """The ids of the data directories that the broker last had; empty if that is not known."""
    try:
        return list(json.loads((source / METADATA_CHECKPOINT).read_text())["directories"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
