"""Send one message to one receiver, by HTTP or SMTP; blocking, from a thread of its own.

Errors say what happened and never where to: an address may be a secret. A redirect is not followed.
"""

from __future__ import annotations

import http.client
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from urllib.parse import urlsplit

from ottla import __version__

from .payloads import complaint, payload_of, plain_text
from .retrying import AFTER_S_MAX
from .rounds import Message
from .rules import Encryption, Receiver, ReceiverKind

TIMEOUT_S = 10.0  # of each step: connect, send, answer
WHOLE_S_MAX = 30.0  # of all steps: an answer that drips holds nobody else's messages up
ANSWER_BYTES_MAX = 64 * 1024
TRY_AGAIN = frozenset({408, 425, 429})  # of the 4xx, those that say "later"


class SendError(Exception):
    """It was not taken. `final`: it will not be at another time either."""

    def __init__(self, text: str, *, final: bool = False, after_s: int = 0) -> None:
        super().__init__(text)
        self.final = final
        self.after_s = after_s


def send(receiver: Receiver, message: Message, now_ms: int) -> None:
    """Raises SendError."""
    try:
        if receiver.kind is ReceiverKind.EMAIL:
            _send_mail(receiver, message, now_ms)
        else:
            _post(receiver, message, now_ms)
    except SendError:
        raise
    except smtplib.SMTPException as error:
        raise SendError(_smtp_words(error), final=_is_final(error)) from None
    except TimeoutError:
        raise SendError(f"no answer in {TIMEOUT_S:.0f} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SendError(f"{type(error).__name__}: {_os_words(error)}") from None


def _post(receiver: Receiver, message: Message, now_ms: int) -> None:
    payload = payload_of(receiver, message, now_ms)
    parts = urlsplit(payload.url)
    assert parts.hostname is not None
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"ottla-console/{__version__}",
    }
    with connected(parts.hostname, connection.port, secure) as connection.sock:
        connection.request("POST", path, payload.body, headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    if not 200 <= answer.status < 300:
        after = answer.headers.get("Retry-After", "")
        raise SendError(
            f"HTTP {answer.status} {answer.reason}"[:300],
            final=300 <= answer.status < 500 and answer.status not in TRY_AGAIN,
            after_s=min(int(after), AFTER_S_MAX) if after.isdecimal() else 0,
        )
    wrong = complaint(receiver.kind, body)
    if wrong is not None:
        raise SendError(wrong[:300])


def _send_mail(receiver: Receiver, message: Message, now_ms: int) -> None:
    mail = EmailMessage()
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = receiver.sender
    mail["To"] = ", ".join(receiver.to)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    mail["Message-ID"] = make_msgid(domain=receiver.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"  # no vacation notices in answer (RFC 3834)
    mail.set_content(plain_text(message), cte="quoted-printable")
    with (
        connected(receiver.host, receiver.port, receiver.encryption is Encryption.TLS) as line,
        MailServer(line, receiver.host) as server,
    ):
        if receiver.encryption is Encryption.STARTTLS:
            server.starttls(context=ssl.create_default_context())
        if receiver.user:
            server.login(receiver.user, receiver.password)
        refused = server.send_message(mail)
    if refused:
        raise SendError(f"refused for {len(refused)} of {len(receiver.to)} addresses", final=True)


@contextmanager
def connected(host: str, port: int, secure: bool) -> Iterator[socket.socket]:
    """A connection that is cut after WHOLE_S_MAX, whatever the other side does."""
    plain = socket.create_connection((host, port), TIMEOUT_S)
    other = plain.dup()  # TLS takes the first away
    late = threading.Event()

    def cut() -> None:
        late.set()
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_S_MAX, cut)
    timer.daemon = True
    timer.start()
    line = plain
    try:
        if secure:
            line = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        yield line
    except Exception:
        if late.is_set():
            raise SendError(f"no whole answer in {WHOLE_S_MAX:.0f} s") from None
        raise
    finally:
        timer.cancel()
        other.close()
        line.close()


class MailServer(smtplib.SMTP):
    """Over a connection that is there."""

    def __init__(self, line: socket.socket, host: str) -> None:
        self._line = line
        super().__init__(host, timeout=TIMEOUT_S)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._line


def _smtp_words(error: smtplib.SMTPException) -> str:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"SMTP {error.smtp_code}: user and password are not taken"
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        words = text.decode(errors="replace") if isinstance(text, bytes) else text
        return f"SMTP {error.smtp_code} {words}"[:300]
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = sorted({code for code, _ in error.recipients.values()})
        return f"SMTP {codes}: no address is taken"
    return f"{type(error).__name__}"


def _is_final(error: smtplib.SMTPException) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 500 for code, _ in error.recipients.values())
    return isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= 500


def _os_words(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror if isinstance(strerror, str) else "the connection failed"
