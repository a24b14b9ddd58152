"""Receivers of alerts that hang, drip, redirect or say too much: each costs its own messages a
bounded time, and nobody else's."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.console.alerts import sending
from ottla.console.alerts.rules import Encryption, Receiver, ReceiverKind
from ottla.console.alerts.sending import SendError, send
from ottla.console.alerts.store import DeliveryState, Store
from tests.small_disk import small_disk

from .pictures import TAKEN_MS
from .receivers import HttpReceiver
from .test_alert_delivery import message, service


@contextmanager
def dripping(begin: bytes) -> Iterator[int]:
    """The port of somebody who says this, and then a byte now and then for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(begin)
            while not over.wait(0.05):
                connection.sendall(b"x")

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        listener.close()


def hook(port: int, scheme: str = "http") -> Receiver:
    return Receiver("ops", ReceiverKind.JSON, url=f"{scheme}://127.0.0.1:{port}/hook")


def mail(port: int, encryption: Encryption) -> Receiver:
    return Receiver("ops", ReceiverKind.EMAIL, host="127.0.0.1", port=port,
                    encryption=encryption, sender="a@b.example", to=("c@d.example",))  # fmt: skip


def test_a_webhook_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its status: an error in words, not hours of waiting; after one that says that it took
    the message, that counts."""
    monkeypatch.setattr(sending, "WHOLE_S_MAX", 0.3)
    with dripping(b"") as port, pytest.raises(SendError, match="no whole answer"):
        send(hook(port), message(), TAKEN_MS)
    for head in (b"HTTP/1.1 200 OK\r\nA: b", b"HTTP/1.1 200 OK\r\n\r\n"):
        with dripping(head) as port:
            send(hook(port), message(), TAKEN_MS)


def test_tls_and_mail_that_drip_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake that never ends, a greeting that never ends, an answer that never ends."""
    monkeypatch.setattr(sending, "WHOLE_S_MAX", 0.3)
    record = b"\x16\x03\x03\x40\x00\x02"  # the begin of a long record of a handshake
    with dripping(record) as port:
        for receiver in (hook(port, "https"), mail(port, Encryption.TLS)):
            with pytest.raises(SendError):
                send(receiver, message(), TAKEN_MS)
    for greeting in (b"220", b"220 here\r\n250"):
        with dripping(greeting) as port, pytest.raises(SendError):
            send(mail(port, Encryption.STARTTLS), message(), TAKEN_MS)


def test_others_get_their_messages_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many receivers hang as there are senders: the next one's message waits its limit, no
    more, and the console stops."""
    monkeypatch.setattr(sending, "WHOLE_S_MAX", 0.3)
    with dripping(b"") as port, HttpReceiver() as good:
        receivers = [replace(hook(port), name=f"bad-{each}") for each in range(6)]
        last = Receiver("z-good", ReceiverKind.JSON, url=good.url)
        alerts = service(tmp_path, *receivers, last)
        with alerts.store._transaction() as connection:
            for each in (*receivers, last):
                alerts.store._enqueue(connection, each.name, message(), TAKEN_MS)
        alerts.start()
        assert good.next().body["rule"] == "lag"
        alerts.stop()


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """Not to another address, nor to one of this machine: it is shown as what it is."""
    with HttpReceiver() as inside, HttpReceiver() as receiver:
        for status in (301, 302, 307, 308):
            receiver.answer = lambda _, status=status: (  # type: ignore[misc]
                status, {"Location": inside.url}, b"",
            )  # fmt: skip
            with pytest.raises(SendError, match=str(status)):
                send(Receiver("ops", ReceiverKind.JSON, url=receiver.url), message(), TAKEN_MS)
        assert inside.requests.empty()


def test_what_a_receiver_says_is_kept_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason of 50 KB is an error of a line."""
    monkeypatch.setattr(sending, "WHOLE_S_MAX", 3.0)
    with dripping(b"HTTP/1.1 500 " + b"no " * 16_000 + b"\r\nContent-Length: 0\r\n\r\n") as port:
        with pytest.raises(SendError) as raised:
            send(hook(port), message(), TAKEN_MS)
        assert len(str(raised.value)) <= 300


def put_many(store: Store) -> None:
    for _ in range(50):
        store.put_trial("ops", message("x" * 5000), TAKEN_MS)


def test_a_full_disk_holds_alerts_up_and_breaks_nothing(tmp_path: Path) -> None:
    """A message that cannot be kept is an error; when there is space, the next one is kept."""
    with small_disk(tmp_path / "disk", 600) as disk:
        store = Store(disk / "console")
        with (disk / "other").open("wb", buffering=0) as other:
            with suppress(OSError):
                while True:
                    other.write(b"x" * 4096)
            for _ in range(2):
                with pytest.raises(sqlite3.OperationalError, match="full"):
                    put_many(store)
            other.truncate(0)
        store.put_trial("ops", message(), TAKEN_MS)
        assert store.deliveries()[0].state is DeliveryState.FAILED  # a trial that was not ended
        store.close()
