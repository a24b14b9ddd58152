"""TLS of one connection, from bytes to bytes: nothing here knows a socket.

    received from the line   -> feed       -> read_into -> plain bytes
    plain bytes              -> write      -> take      -> to be sent on the line

The handshake is driven by `handshake`, each call one step over what was fed. Errors are
TlsFailures.
"""

from __future__ import annotations

import ssl
from typing import Any

from .failure import TlsFailure

RECORD_BYTES_MAX = 16 * 1024  # of plain bytes, by the protocol


class TlsEngine:
    """One end of a connection; `server_hostname` makes it a client's, and is checked."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ended", "established")

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side, server_hostname
        )
        self.established = False
        self.ended = False  # the other side has said that nothing follows

    def feed(self, data: memoryview) -> None:
        """Takes what was received."""
        self._incoming.write(data)

    def feed_end(self) -> None:
        """The line has ended."""
        self._incoming.write_eof()

    @property
    def unread(self) -> int:
        """Bytes fed that no call has consumed yet: part of a record, or several."""
        return self._incoming.pending

    @property
    def outgoing(self) -> int:
        """Bytes that wait to be taken."""
        return self._outgoing.pending

    def handshake(self) -> bool:
        """One step; whether the handshake is complete."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise failure_of(error) from None
        self.established = True
        return True

    def read_into(self, view: memoryview) -> int:
        """Plain bytes into `view`, as many as are there and fit; 0: none now, or `ended`."""
        done, size = 0, len(view)
        read: Any = self._object.read
        try:
            while done < size:
                got = read(size - done, view[done:])
                if not got:
                    self.ended = True
                    break
                done += got
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.ended = True
        except ssl.SSLError as error:
            raise failure_of(error) from None
        return done

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Takes plain bytes; how many."""
        try:
            return self._object.write(data)
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise failure_of(error) from None

    def take(self) -> bytes:
        """All that is to be sent on the line now."""
        return self._outgoing.read()

    def end(self) -> None:
        """Says to the other side that nothing follows."""
        try:
            self._object.unwrap()
        except ssl.SSLError:
            pass  # the alert is written, or there is nobody for it

    def peer_certificate(self) -> bytes | None:
        """What the other side has shown, in DER; None: nothing."""
        return self._object.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        return self._object.version() or ""

    @property
    def cipher(self) -> str:
        found = self._object.cipher()
        return found[0] if found else ""


def failure_of(error: ssl.SSLError) -> TlsFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailure.of("CERTIFICATE_VERIFY_FAILED", error.verify_message)
    if isinstance(error, ssl.SSLEOFError):
        return TlsFailure.of("UNEXPECTED_EOF_WHILE_READING")
    return TlsFailure.of((error.reason or "").upper(), "" if error.reason else str(error))
