"""Data directories before a server runs on them: make one a node's own, and say whose it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.settings import Settings


class Directory(NamedTuple):
    """One of `log.dirs`: where, and what its meta.properties says (None: nothing yet)."""

    path: str
    exists: bool
    meta: dict[str, str] | None


def settings_of(path: str) -> Settings:
    from ottla.cli.server_options import read_settings

    return read_settings(path, (), None, None)


def directories(settings: Settings) -> list[Directory]:
    from ottla.log.checkpoints import CorruptCheckpoint, read_meta_properties
    from ottla.seams.disk import RealDisk

    found = []
    disk = RealDisk()
    for path in settings.data_directories:
        try:
            meta = read_meta_properties(disk, path)
        except CorruptCheckpoint as problem:
            raise Failure(str(problem), "restore that file, or use another directory") from None
        plain = None
        if meta is not None:
            plain = {"cluster.id": meta.cluster_id}
            if meta.directory_id is not None:
                plain["directory.id"] = meta.directory_id
            plain |= {"node.id": str(meta.node_id), "version": "1"}
        found.append(Directory(path, os.path.isdir(path), plain))
    return found


def format_directory(path: str, cluster_id: str, node_id: int) -> None:
    """Write whose directory it is; a server then starts with this cluster id."""
    from ottla.log.checkpoints import MetaProperties, uuid_text, write_meta_properties
    from ottla.seams.chance import RealChance
    from ottla.seams.disk import RealDisk

    disk = RealDisk()
    disk.mkdir(path)
    meta = MetaProperties(cluster_id, node_id, uuid_text(RealChance().uuid()))
    write_meta_properties(disk, path, meta)


def random_id() -> str:
    from ottla.log.checkpoints import uuid_text
    from ottla.seams.chance import RealChance

    return uuid_text(RealChance().uuid())
