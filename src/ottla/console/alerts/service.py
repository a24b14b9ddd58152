"""The alerts of a console: a thread that looks at the pictures, and threads that send.

`AlertService(clusters, data_dir, rules, receivers)`; `start()` and `stop()`. What it holds in
memory is a copy of what `store.py` keeps, except the rules and receivers of the file, which no page
may change. Each receiver's messages are sent in order, one at a time; receivers do not wait for
each other, up to SENDERS at a time.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..context import Cluster
from .machine import Alert
from .retrying import is_due, next_attempt
from .rounds import AlertKey, Message, look, trial_message
from .rules import (
    RECEIVERS_MAX,
    RULES_MAX,
    SILENCES_MAX,
    Receiver,
    Rule,
    RuleError,
    Silence,
    check_receiver,
    check_rule,
)
from .sending import SendError, send
from .store import Delivery, Store

LOOK_EVERY_S = 10.0
OUTBOX_EVERY_S = 1.0  # how late a retry may be
SENDERS = 4
STOP_S = 15.0  # for a message under way

logger = logging.getLogger(__name__)
Send = Callable[[Receiver, Message, int], None]


def now() -> int:
    return int(time.time() * 1000)


class AlertService:
    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        data_dir: Path,
        rules: Sequence[Rule] = (),
        receivers: Sequence[Receiver] = (),
        *,
        clock: Callable[[], int] = now,
        send: Send = send,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.clusters = clusters
        self.store = Store(data_dir)
        self.clock = clock
        self.left_out = 0
        self._send = send
        self._look_every_s = look_every_s
        self._file_rules = {rule.name: rule for rule in rules}
        self._file_receivers = {each.name: each for each in receivers}
        self._lock = threading.RLock()  # rules, receivers, silences and alerts below
        self._turn = threading.Lock()  # one round at a time
        self._kept_rules = self.store.rules()
        self._kept_receivers = {each.name: each for each in self.store.receivers()}
        self._silences = self.store.silences()
        self._alerts = self.store.alerts()
        self._stopping = threading.Event()
        self._more_to_send = threading.Event()
        self._look_now = threading.Event()
        self._sending: set[str] = set()  # receivers with a message under way
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="alerts-send")
        self._threads = [
            threading.Thread(target=self._look_often, name="alerts-look", daemon=True),
            threading.Thread(target=self._send_often, name="alerts-outbox", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._look_now.set()
        self._more_to_send.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(STOP_S)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.store.close()

    # What pages ask

    def rules(self) -> list[Rule]:
        """Those of the file and those that people made; the file's win over a name."""
        with self._lock:
            kept = {rule.name: rule for rule, deleted in self._kept_rules if not deleted}
            return sorted({**kept, **self._file_rules}.values(), key=lambda each: each.name)

    def receivers(self) -> dict[str, Receiver]:
        with self._lock:
            return {**self._kept_receivers, **self._file_receivers}

    def from_file(self, name: str) -> bool:
        """Whether a rule or receiver of this name stands in the file."""
        return name in self._file_rules or name in self._file_receivers

    def silences(self) -> list[Silence]:
        """Those that have not ended."""
        time_ms = self.clock()
        with self._lock:
            return [each for each in self._silences if each.until_ms > time_ms]

    def alerts(self) -> dict[AlertKey, tuple[Alert, str]]:
        with self._lock:
            return dict(self._alerts)

    def silenced(self, key: AlertKey) -> bool:
        return any(each.covers(*key[:3]) for each in self.silences())

    # What pages change

    def put_rule(self, rule: Rule) -> None:
        check_rule(rule, self.receivers())
        with self._lock:
            self._not_of_the_file(rule.name, self._file_rules)
            if len(self.rules()) >= RULES_MAX and rule.name not in {r.name for r in self.rules()}:
                raise RuleError(f"there are {RULES_MAX} rules, the most that the console keeps")
            self.store.put_rule(rule)
            self._kept_rules = self.store.rules()
        self._look_now.set()

    def delete_rule(self, name: str) -> None:
        """Its alerts are resolved in the next round."""
        with self._lock:
            self._not_of_the_file(name, self._file_rules)
            rule = next((each for each in self.rules() if each.name == name), None)
            if rule is None:
                raise RuleError(f"there is no rule {name!r}")
            self.store.put_rule(replace(rule, enabled=False), deleted=True)
            self._kept_rules = self.store.rules()
        self._look_now.set()

    def put_receiver(self, receiver: Receiver) -> None:
        check_receiver(receiver)
        with self._lock:
            self._not_of_the_file(receiver.name, self._file_receivers)
            known = self.receivers()
            if receiver.name not in known and len(known) >= RECEIVERS_MAX:
                raise RuleError(f"there are {RECEIVERS_MAX} receivers, the most that are kept")
            self.store.put_receiver(receiver)
            self._kept_receivers[receiver.name] = receiver
        self._more_to_send.set()

    def delete_receiver(self, name: str) -> None:
        with self._lock:
            self._not_of_the_file(name, self._file_receivers)
            if name not in self._kept_receivers:
                raise RuleError(f"there is no receiver {name!r}")
            users = [rule.name for rule in self.rules() if name in rule.receivers]
            if users:
                raise RuleError(f"the rules {', '.join(users)} send to {name}: change them first")
            self.store.delete_receiver(name)
            del self._kept_receivers[name]

    def put_silence(self, silence: Silence) -> str:
        with self._lock:
            if len(self.silences()) >= SILENCES_MAX:
                raise RuleError(f"there are {SILENCES_MAX} silences: end one first")
            self.store.delete_silences(ended_before_ms=self.clock())
            ident = self.store.put_silence(silence)
            self._silences = self.store.silences()
        return ident

    def end_silence(self, ident: str) -> None:
        with self._lock:
            self.store.delete_silences(ident=ident)
            self._silences = self.store.silences()
        self._look_now.set()

    def test(self, receiver: str, rule: Rule | None = None) -> Delivery:
        """Send a test message now; what became of it. Blocks: not on the event loop."""
        found = self.receivers().get(receiver)
        if found is None:
            raise RuleError(f"there is no receiver {receiver!r}")
        time_ms = self.clock()
        message = trial_message(rule, receiver, time_ms)
        ident = self.store.put_trial(receiver, message, time_ms)
        try:
            self._send(found, message, time_ms)
        except SendError as error:
            self.store.failed(ident, self.clock(), str(error))
        else:
            self.store.delivered(ident, self.clock())
        delivery = self.store.delivery(ident)
        assert delivery is not None
        return delivery

    def again(self, ident: int) -> None:
        self.store.again(ident, self.clock())
        self._more_to_send.set()

    @staticmethod
    def _not_of_the_file(name: str, of_the_file: Mapping[str, object]) -> None:
        if name in of_the_file:
            raise RuleError(f"{name} stands in the console's file: change it there")

    # The rounds

    def look(self) -> None:
        """One round, kept before anything is sent."""
        with self._turn:
            time_ms = self.clock()
            with self._lock:
                rules = {rule.name: rule for rule, _ in self._kept_rules} | self._file_rules
                deleted = any(is_deleted for _, is_deleted in self._kept_rules)
                silences = list(self._silences)
                alerts = {key: alert for key, (alert, _) in self._alerts.items()}
            pictures = {name: each.picture for name, each in self.clusters.items()}
            found = look(rules.values(), pictures, alerts, silences, time_ms)
            if found.left_out and not self.left_out:
                logger.warning("%d alerts are beyond what is kept", found.left_out)
            self.left_out = found.left_out
            if found.changes or found.messages:
                self.store.keep(found, time_ms)
                with self._lock:
                    for change in found.changes:
                        if change.after is None:
                            self._alerts.pop(change.key, None)
                        else:
                            self._alerts[change.key] = (change.after, change.text)
                        if change.event is not None:
                            logger.info("alert %s: %s", change.event, ascii(change.text))
            if deleted:
                with self._lock:
                    self.store.purge_rules()
                    self._kept_rules = self.store.rules()
        if found.messages:
            self._more_to_send.set()

    def _look_often(self) -> None:
        while not self._stopping.is_set():
            self._look_now.clear()
            try:
                self.look()
            except Exception:
                # A full disk, say: the states did not change, so the next round tells it all.
                logger.exception("the alert rules could not be looked at")
            self._look_now.wait(self._look_every_s)

    # The outbox

    def _send_often(self) -> None:
        while not self._stopping.is_set():
            self._more_to_send.clear()
            try:
                self.send_due()
            except Exception:
                logger.exception("the outbox of alerts could not be read")
            self._more_to_send.wait(OUTBOX_EVERY_S)

    def send_due(self) -> None:
        """Begin to send what is due, one message per receiver."""
        time_ms = self.clock()
        for delivery in self.store.heads():
            with self._lock:
                busy = delivery.receiver in self._sending
                if busy or not is_due(delivery.next_ms, time_ms) or self._stopping.is_set():
                    continue
                self._sending.add(delivery.receiver)
            self._pool.submit(self._deliver, delivery)

    def _deliver(self, delivery: Delivery) -> None:
        try:
            self._try(delivery)
        except sqlite3.Error:
            logger.exception("what became of message %d could not be kept", delivery.id)
        finally:
            with self._lock:
                self._sending.discard(delivery.receiver)
            self._more_to_send.set()

    def _try(self, delivery: Delivery) -> None:
        receiver = self.receivers().get(delivery.receiver)
        try:
            if receiver is None:
                raise SendError("there is no such receiver any more", final=True)
            self._send(receiver, delivery.message, self.clock())
        except SendError as error:
            self._postpone(delivery, error)
        except Exception as error:  # a fault of ours must not lose the message
            logger.exception("message %d to %s failed", delivery.id, delivery.receiver)
            self._postpone(delivery, SendError(f"a fault of the console: {type(error).__name__}"))
        else:
            self.store.delivered(delivery.id, self.clock())

    def _postpone(self, delivery: Delivery, error: SendError) -> None:
        time_ms = self.clock()
        next_ms = next_attempt(
            delivery.created_ms,
            delivery.attempts + 1,
            time_ms,
            final=error.final,
            after_s=error.after_s,
        )
        where = f"message {delivery.id} to receiver {delivery.receiver}"
        if next_ms is None:
            logger.error("%s is given up: %s", where, error)
            self.store.failed(delivery.id, time_ms, str(error))
        else:
            logger.warning("%s is not taken yet: %s", where, error)
            self.store.postponed(delivery.id, next_ms, str(error))
