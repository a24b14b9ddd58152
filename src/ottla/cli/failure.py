"""What a command says when it cannot go on: the fact, and what to try."""

from __future__ import annotations

import errno
import os
import socket


class Failure(Exception):
    """Ends a command: `ottla: FACT`, `Try: HINT`, and the exit code."""

    def __init__(self, fact: str, hint: str = "", *, exit_code: int = 1) -> None:
        super().__init__(fact)
        self.fact = fact
        self.hint = hint
        self.exit_code = exit_code

    def text(self) -> str:
        lines = [f"ottla: {self.fact}"]
        if self.hint:
            lines.append(f"Try: {self.hint}")
        return "\n".join(lines)


def cannot_listen(
    error: OSError, address: str, option: str, command: str = "ottla server"
) -> Failure:
    """Why a port could not be opened."""
    again = f"{command} {option} 127.0.0.1:0, which takes any free port"
    if error.errno == errno.EADDRINUSE:
        return Failure(f"cannot listen on {address}: the port is in use", again)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Failure(f"cannot listen on {address}: the port needs more rights", again)
    if isinstance(error, socket.gaierror):
        return Failure(f"cannot listen on {address}: the host has no address here", again)
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return Failure(f"cannot listen on {address}: not an address of this machine", again)
    return Failure(f"cannot listen on {address}: {error.strerror or error}", again)


def cannot_use_directory(error: OSError, directory: str) -> Failure:
    """Why the data directory cannot be used."""
    where = str(error.filename or directory)
    inside = where if where.startswith(directory) else directory
    if error.errno == errno.ENOSPC or error.errno == getattr(errno, "EDQUOT", -1):
        return Failure(
            f"cannot start: no space left for {inside}",
            "free space on that disk, or ottla server --data-dir ANOTHER-DIRECTORY",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Failure(
            f"cannot write to {inside}: {lower(error.strerror)}",
            f"a directory that {user_name()} may write to: ottla server --data-dir DIRECTORY",
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return Failure(
            f"cannot use {directory}: it is not a directory",
            "ottla server --data-dir ANOTHER-DIRECTORY",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Failure("cannot start: too many open files", "ulimit -n 65536, then start again")
    return Failure(
        f"cannot use {inside}: {lower(error.strerror) or error}",
        "look at that file, or ottla server --data-dir ANOTHER-DIRECTORY",
    )


def lower(text: str | None) -> str:
    return text[:1].lower() + text[1:] if text else ""


def user_name() -> str:
    return os.environ.get("USER") or "this user"
