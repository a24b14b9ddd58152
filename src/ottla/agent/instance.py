"""Who this agent is: an instance id kept in its data directory, and a lock on that directory.

The same file runs as agent `a1` on a hundred hosts: transactional ids and positions carry the
instance id, so that they do not fence one another. In containers, whose directories do not last,
`--instance` names it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import uuid
from pathlib import Path

from .atomic_file import create_file

logger = logging.getLogger(__name__)
INSTANCE_FILE = "instance"
VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


class InstanceError(RuntimeError):
    """The data directory cannot be used; says why and what to try."""


class Instance:
    """A locked directory of one agent, and the id of the instance."""

    def __init__(self, instance_id: str, directory: Path, lock: int) -> None:
        self.id = instance_id
        self.directory = directory  # of this agent
        self._lock = lock

    def close(self) -> None:
        """Lets another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def open_instance(data_directory: Path, agent: str, given_id: str | None = None) -> Instance:
    """Locks the agent's directory, and finds or makes the id. Raises `InstanceError`."""
    if given_id is not None and not VALID_ID.fullmatch(given_id):
        raise InstanceError(
            f"--instance: 1 to 100 letters, digits, dots, underscores, hyphens (got {given_id!r})"
        )
    directory = data_directory / agent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise InstanceError(
            f"data directory {directory}: {problem.strerror}\nTry: --data-dir DIRECTORY"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InstanceError(
            f"data directory {directory}: another agent {agent} runs on it\n"
            "Try: stop it, or --data-dir with another directory for a second instance"
        ) from None
    try:
        return Instance(given_id or _kept_id(data_directory), directory, lock)
    except InstanceError:
        os.close(lock)
        raise


def _kept_id(data_directory: Path) -> str:
    path = data_directory / INSTANCE_FILE
    try:
        if not path.exists():
            create_file(path, f"{uuid.uuid4().hex}\n".encode())
            logger.info("%s is new: this instance has no positions yet", data_directory)
        found = path.read_text(errors="backslashreplace").strip()
    except OSError as problem:
        raise InstanceError(
            f"{path}: {problem.strerror}\n"
            "Try: --data-dir DIRECTORY, or --instance with the id that the agent had"
        ) from None
    if not VALID_ID.fullmatch(found):
        raise InstanceError(
            f"{path}: not an instance id (found {found[:40]!r})\n"
            "Try: restore it, or --instance with the id that the agent had"
        )
    return found
