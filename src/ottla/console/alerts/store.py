"""Rules, receivers, silences, alerts, their history and the outbox in one SQLite file (0600).

A round is kept in one transaction: the new states, the history and the messages to send. So a crash
loses neither a message whose state was kept nor sends one twice for the same change; a message that
was handed over just before a crash is sent again, since nobody can know (at least once).
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..kept_file import KeptFile
from .machine import Alert, Phase
from .rounds import AlertKey, Line, Message, Round
from .rules import Receiver, Rule, Silence, from_mapping

FILE_NAME = "alerts.db"
SCHEMA_VERSION = 1
HISTORY_MAX = 50_000  # entries; the oldest go first
OUTBOX_KEPT_MAX = 5_000  # deliveries that ended
OUTBOX_WAITING_MAX = 10_000  # messages that wait; a further one makes the oldest fail, visibly
TRIM_EVERY = 100
BUSY_MS = 10_000

SCHEMA = """
CREATE TABLE rules (name TEXT PRIMARY KEY, body TEXT NOT NULL, deleted INTEGER NOT NULL);
CREATE TABLE receivers (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE silences (
    id TEXT PRIMARY KEY, rules TEXT NOT NULL, clusters TEXT NOT NULL, subjects TEXT NOT NULL,
    until_ms INTEGER NOT NULL, user TEXT NOT NULL, note TEXT NOT NULL);
CREATE TABLE alerts (
    rule TEXT NOT NULL, cluster TEXT NOT NULL, subject TEXT NOT NULL, topic TEXT NOT NULL,
    phase TEXT NOT NULL, since_ms INTEGER NOT NULL, value REAL NOT NULL, fired_ms INTEGER,
    clear_since_ms INTEGER, told_ms INTEGER, text TEXT NOT NULL,
    PRIMARY KEY (rule, cluster, subject, topic));
CREATE TABLE history (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, cluster TEXT NOT NULL,
    subject TEXT NOT NULL, topic TEXT NOT NULL, text TEXT NOT NULL, fired_ms INTEGER NOT NULL,
    resolved_ms INTEGER);
CREATE INDEX history_open ON history (rule, cluster, subject, topic) WHERE resolved_ms IS NULL;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, body TEXT NOT NULL,
    state TEXT NOT NULL, created_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,
    next_ms INTEGER NOT NULL, ended_ms INTEGER, error TEXT NOT NULL);
CREATE INDEX outbox_waiting ON outbox (receiver, id) WHERE state = 'waiting';
"""


class AlertFileError(Exception):
    """The file cannot be used: what, and what to do."""


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Delivery:
    id: int
    receiver: str
    message: Message
    state: DeliveryState
    created_ms: int
    attempts: int
    next_ms: int
    ended_ms: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Past:
    """An alert that fired once; `resolved_ms` is None while it does."""

    id: int
    rule: str
    cluster: str
    subject: str
    topic: str
    text: str
    fired_ms: int
    resolved_ms: int | None


def message_to_text(message: Message) -> str:
    return json.dumps(asdict(message))


def message_from_text(text: str) -> Message:
    found = json.loads(text)
    return Message(**{**found, "lines": tuple(Line(**line) for line in found["lines"])})


class Store:
    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / FILE_NAME
        self._lock = threading.Lock()
        self._ended = 0
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Receivers' addresses and passwords stand in it.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            os.chmod(self.path, 0o600)
            self._file = KeptFile(self.path)
            self._connection = self._opened()
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise AlertFileError(
                f"{self.path}: alerts cannot be kept: {error}\n"
                "Try: let this user read and write the file and its directory, or name another "
                "one by --data-dir"
            ) from error

    def _opened(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
        )
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
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

    # What people write

    def rules(self) -> list[tuple[Rule, bool]]:
        """All rules, and whether each is deleted: one that is stays until its alerts ended."""
        rows = self._rows("SELECT body, deleted FROM rules ORDER BY name")
        return [
            (from_mapping(Rule, json.loads(body), "rule"), bool(deleted)) for body, deleted in rows
        ]

    def put_rule(self, rule: Rule, *, deleted: bool = False) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO rules VALUES (?, ?, ?)",
                (rule.name, json.dumps(asdict(rule)), deleted),
            )

    def purge_rules(self) -> None:
        """Forget deleted rules that have no alert any more."""
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM rules WHERE deleted AND name NOT IN (SELECT rule FROM alerts)"
            )

    def receivers(self) -> list[Receiver]:
        rows = self._rows("SELECT body FROM receivers ORDER BY name")
        return [from_mapping(Receiver, json.loads(body), "receiver") for (body,) in rows]

    def put_receiver(self, receiver: Receiver) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO receivers VALUES (?, ?)",
                (receiver.name, json.dumps(asdict(receiver))),
            )

    def delete_receiver(self, name: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM receivers WHERE name=?", (name,))

    def silences(self) -> list[Silence]:
        rows = self._rows(
            "SELECT id, rules, clusters, subjects, until_ms, user, note FROM silences "
            "ORDER BY until_ms"
        )
        return [Silence(*row) for row in rows]

    def put_silence(self, silence: Silence) -> str:
        ident = silence.id or secrets.token_hex(8)
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO silences VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    ident,
                    silence.rules,
                    silence.clusters,
                    silence.subjects,
                    silence.until_ms,
                    silence.user,
                    silence.note,
                ),
            )
        return ident

    def delete_silences(self, *, ident: str = "", ended_before_ms: int = 0) -> None:
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM silences WHERE id=? OR until_ms < ?", (ident, ended_before_ms)
            )

    # What happens

    def alerts(self) -> dict[AlertKey, tuple[Alert, str]]:
        """The alerts that are not inactive, each with its words."""
        rows = self._rows(
            "SELECT rule, cluster, subject, topic, phase, since_ms, value, fired_ms, "
            "clear_since_ms, told_ms, text FROM alerts"
        )
        return {
            AlertKey(*row[:4]): (Alert(Phase(row[4]), *row[5:10]), str(row[10])) for row in rows
        }

    def keep(self, found: Round, now_ms: int) -> None:
        """A round: states, history and messages, all or nothing."""
        with self._transaction() as connection:
            for change in found.changes:
                key, after = change.key, change.after
                if after is None:
                    connection.execute(
                        "DELETE FROM alerts WHERE rule=? AND cluster=? AND subject=? AND topic=?",
                        key,
                    )
                else:
                    connection.execute(
                        "INSERT OR REPLACE INTO alerts VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                        (
                            *key,
                            after.phase,
                            after.since_ms,
                            after.value,
                            after.fired_ms,
                            after.clear_since_ms,
                            after.told_ms,
                            change.text,
                        ),
                    )
                fired_before = change.before is not None and change.before.fired_ms is not None
                if after is not None and after.fired_ms is not None and not fired_before:
                    connection.execute(
                        "INSERT INTO history (rule, cluster, subject, topic, text, fired_ms) "
                        "VALUES (?, ?, ?, ?, ?, ?)",
                        (*key, change.text, after.fired_ms),
                    )
                elif after is None and fired_before:
                    connection.execute(
                        "UPDATE history SET resolved_ms=? WHERE rule=? AND cluster=? AND subject=? "
                        "AND topic=? AND resolved_ms IS NULL",
                        (now_ms, *key),
                    )
            for receiver, message in found.messages:
                self._enqueue(connection, receiver, message, now_ms)
            connection.execute(
                "DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (HISTORY_MAX,)
            )

    def past(self, *, before: int | None = None, limit: int = 100) -> list[Past]:
        """The newest first."""
        rows = self._rows(
            "SELECT id, rule, cluster, subject, topic, text, fired_ms, resolved_ms FROM history "
            "WHERE id < ? ORDER BY id DESC LIMIT ?",
            before if before is not None else 2**62,
            limit,
        )
        return [Past(*row) for row in rows]

    # The outbox

    def put_trial(self, receiver: str, message: Message, now_ms: int) -> int:
        """A test message, which its caller sends: the outbox does not."""
        with self._transaction() as connection:
            done = connection.execute(
                "INSERT INTO outbox (receiver, body, state, created_ms, attempts, next_ms, error) "
                "VALUES (?, ?, 'failed', ?, 0, ?, 'the test did not end')",
                (receiver, message_to_text(message), now_ms, now_ms),
            )
        assert done.lastrowid is not None
        return done.lastrowid

    def _enqueue(
        self, connection: sqlite3.Connection, receiver: str, message: Message, now_ms: int
    ) -> None:
        connection.execute(
            "INSERT INTO outbox (receiver, body, state, created_ms, attempts, next_ms, error) "
            "VALUES (?, ?, 'waiting', ?, 0, ?, '')",
            (receiver, message_to_text(message), now_ms, now_ms),
        )
        connection.execute(
            "UPDATE outbox SET state='failed', ended_ms=?, error=? WHERE state='waiting' AND id <= "
            "(SELECT id FROM outbox WHERE state='waiting' ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (
                now_ms,
                f"more than {OUTBOX_WAITING_MAX} messages wait: this one was the oldest",
                OUTBOX_WAITING_MAX,
            ),
        )

    def heads(self) -> list[Delivery]:
        """The oldest waiting message of each receiver: they are sent in order."""
        return self._deliveries(
            "WHERE id IN (SELECT min(id) FROM outbox WHERE state='waiting' GROUP BY receiver)"
        )

    def deliveries(self, *, limit: int = 100) -> list[Delivery]:
        """The newest first."""
        return self._deliveries("ORDER BY id DESC LIMIT ?", limit)

    def delivery(self, ident: int) -> Delivery | None:
        return next(iter(self._deliveries("WHERE id=?", ident)), None)

    def _deliveries(self, where: str, *values: object) -> list[Delivery]:
        rows = self._rows(
            "SELECT id, receiver, body, state, created_ms, attempts, next_ms, ended_ms, error "
            f"FROM outbox {where}",
            *values,
        )
        return [
            Delivery(row[0], row[1], message_from_text(row[2]), DeliveryState(row[3]), *row[4:])
            for row in rows
        ]

    def delivered(self, ident: int, now_ms: int) -> None:
        self._end(ident, DeliveryState.SENT, now_ms, "")

    def failed(self, ident: int, now_ms: int, error: str) -> None:
        self._end(ident, DeliveryState.FAILED, now_ms, error)

    def _end(self, ident: int, state: DeliveryState, now_ms: int, error: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE outbox SET state=?, attempts=attempts+1, ended_ms=?, error=? WHERE id=?",
                (state, now_ms, error, ident),
            )
            self._ended += 1
            if self._ended % TRIM_EVERY == 0:
                connection.execute(
                    "DELETE FROM outbox WHERE state<>'waiting' AND id <= "
                    "(SELECT max(id) FROM outbox) - ?",
                    (OUTBOX_KEPT_MAX,),
                )

    def postponed(self, ident: int, next_ms: int, error: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE outbox SET attempts=attempts+1, next_ms=?, error=? WHERE id=?",
                (next_ms, error, ident),
            )

    def again(self, ident: int, now_ms: int) -> None:
        """Try once more what failed, or what waits, now."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE outbox SET state='waiting', next_ms=?, created_ms=?, attempts=0, "
                "ended_ms=NULL WHERE id=? AND state<>'sent'",
                (now_ms, now_ms, ident),
            )
