"""Users, sessions, tokens and the audit log in one SQLite file that only its owner may read.

Of passwords it holds hashes (`passwords.py`), of session ids and tokens SHA-256: who reads the file
cannot log in with what stands there. Each method is one transaction. Written with
`synchronous=NORMAL`: what was written survives a crash of the process; a power cut may take the
last moments of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..kept_file import KeptFile
from .guard import AuditEntry
from .permissions import Grant, Role

FILE_NAME = "access.db"
SCHEMA_VERSION = 1
AUDIT_ENTRIES_MAX = 200_000
AUDIT_TRIM_EVERY = 1_000  # entries between two looks at how many there are
BUSY_MS = 10_000

SCHEMA = """
CREATE TABLE users (
    name TEXT PRIMARY KEY, password TEXT NOT NULL, must_change INTEGER NOT NULL,
    disabled INTEGER NOT NULL, grants TEXT NOT NULL, created_ms INTEGER NOT NULL,
    source TEXT NOT NULL);
CREATE TABLE sessions (
    id_hash TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users(name) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL, address TEXT NOT NULL);
CREATE TABLE tokens (
    token_hash TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    user TEXT NOT NULL REFERENCES users(name) ON DELETE CASCADE, within TEXT NOT NULL,
    created_ms INTEGER NOT NULL, expires_ms INTEGER, used_ms INTEGER);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, user TEXT NOT NULL,
    address TEXT NOT NULL, action TEXT NOT NULL, cluster TEXT NOT NULL, target TEXT NOT NULL,
    result TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class AccessFileError(Exception):
    """The file cannot be used: what, and what to do."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str  # its hash; empty where another service knows it
    must_change: bool
    disabled: bool
    grants: tuple[Grant, ...]
    created_ms: int
    source: str = "local"  # or "oidc:…", of whom (`id_tokens.py`)

    @property
    def service(self) -> str:
        """Where the user logs in: local or oidc."""
        return self.source.partition(":")[0]

    def __repr__(self) -> str:
        return f"User({self.name!r})"  # never the hash


@dataclass(frozen=True, slots=True)
class Session:
    id_hash: str
    user: str
    created_ms: int
    seen_ms: int
    address: str


@dataclass(frozen=True, slots=True)
class Token:
    token_hash: str
    id: str
    name: str
    user: str
    within: Grant
    created_ms: int
    expires_ms: int | None
    used_ms: int | None


def grants_to_text(grants: Sequence[Grant]) -> str:
    return json.dumps([[each.role, each.clusters, each.topics] for each in grants])


def grants_from_text(text: str) -> tuple[Grant, ...]:
    return tuple(Grant(Role(role), clusters, topics) for role, clusters, topics in json.loads(text))


class Store:
    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / FILE_NAME
        self._lock = threading.Lock()
        self._recorded = 0
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Made before SQLite opens it, which gives its own mode to the files beside it.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            os.chmod(self.path, 0o600)
            self._file = KeptFile(self.path)
            self._connection = self._opened()
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise AccessFileError(
                f"{self.path}: users and sessions cannot be kept: {error}\n"
                "Try: let this user read and write the file and its directory, or name another "
                "one by --data-dir"
            ) from error

    def _opened(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
        )
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            made.execute(f"PRAGMA {pragma}")
        return made

    def _prepare(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._transaction() as connection:
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"its form is {version}, this Ottla knows {SCHEMA_VERSION}: a newer one wrote it"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._file.gone():
                self._file.write_again(self._connection, self._connection.close)
                self._connection = self._opened()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A commit that a full disk refused leaves it open, or SQLite has ended it already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # Users

    def users(self) -> list[User]:
        rows = self._rows(
            "SELECT name, password, must_change, disabled, grants, created_ms, source FROM users"
        )
        return [
            User(name, password, bool(must), bool(off), grants_from_text(grants), created, source)
            for name, password, must, off, grants, created, source in rows
        ]

    def put_user(self, user: User) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "password=excluded.password, must_change=excluded.must_change, "
                "disabled=excluded.disabled, grants=excluded.grants, source=excluded.source",
                (
                    user.name,
                    user.password,
                    user.must_change,
                    user.disabled,
                    grants_to_text(user.grants),
                    user.created_ms,
                    user.source,
                ),
            )

    def delete_user(self, name: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM users WHERE name=?", (name,))

    # Sessions

    def sessions(self) -> list[Session]:
        rows = self._rows("SELECT id_hash, user, created_ms, seen_ms, address FROM sessions")
        return [Session(*row) for row in rows]

    def put_session(self, session: Session) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id_hash) DO UPDATE SET seen_ms=excluded.seen_ms",
                (
                    session.id_hash,
                    session.user,
                    session.created_ms,
                    session.seen_ms,
                    session.address,
                ),
            )

    def delete_sessions(self, id_hashes: Sequence[str]) -> None:
        with self._transaction() as connection:
            connection.executemany(
                "DELETE FROM sessions WHERE id_hash=?", [(each,) for each in id_hashes]
            )

    # Tokens

    def tokens(self) -> list[Token]:
        rows = self._rows(
            "SELECT token_hash, id, name, user, within, created_ms, expires_ms, used_ms FROM tokens"
        )
        return [
            Token(key, ident, name, user, grants_from_text(within)[0], created, expires, used)
            for key, ident, name, user, within, created, expires, used in rows
        ]

    def put_token(self, token: Token) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (token_hash) DO UPDATE SET used_ms=excluded.used_ms",
                (
                    token.token_hash,
                    token.id,
                    token.name,
                    token.user,
                    grants_to_text([token.within]),
                    token.created_ms,
                    token.expires_ms,
                    token.used_ms,
                ),
            )

    def delete_token(self, ident: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM tokens WHERE id=?", (ident,))

    # Audit

    def record(self, entry: AuditEntry) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO audit (time_ms, user, address, action, cluster, target, result, "
                "detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.time_ms,
                    entry.user,
                    entry.address,
                    entry.action,
                    entry.cluster,
                    entry.target,
                    entry.result,
                    entry.detail,
                ),
            )
            self._recorded += 1
            if self._recorded % AUDIT_TRIM_EVERY == 0:
                connection.execute(
                    "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?",
                    (AUDIT_ENTRIES_MAX,),
                )

    def audit(
        self, *, before: int | None = None, limit: int = 100, containing: str = ""
    ) -> list[tuple[int, AuditEntry]]:
        """The newest first, with their numbers; `containing` looks into every text."""
        text = "user || ' ' || address || ' ' || action || ' ' || cluster || ' ' || target || ' '"
        rows = self._rows(
            "SELECT id, time_ms, user, address, action, cluster, target, result, detail "
            f"FROM audit WHERE id < ? AND instr(lower({text} || result || ' ' || detail), ?) "
            "ORDER BY id DESC LIMIT ?",
            before if before is not None else 2**62,
            containing.lower(),
            limit,
        )
        return [(number, AuditEntry(*entry)) for number, *entry in rows]

    # Facts

    def fact(self, name: str, made: str) -> str:
        """The value kept under the name; `made` is kept and given where there was none."""
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, made))
            (value,) = connection.execute(
                "SELECT value FROM facts WHERE name=?", (name,)
            ).fetchone()
        return str(value)
