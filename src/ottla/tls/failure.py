"""What ends a TLS connection, in a sentence for the log of whoever operates it."""

from __future__ import annotations

# OpenSSL's reasons, and what they mean to an operator. A sentence completes "the connection: …".
SENTENCES = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS; its security protocol may be PLAINTEXT",
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS; its security protocol may be PLAINTEXT",
    "UNSUPPORTED_PROTOCOL": "both sides have no TLS version in common (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "both sides have no cipher suite in common (ssl.cipher.suites)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and ssl.client.auth is "
    "required",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate that it was shown",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it takes the certificate that it was shown for expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "both sides have no TLS version in common "
    "(ssl.enabled.protocols)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate, and none was shown",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it ended the handshake: no cipher suite in common, or it "
    "wants a certificate",
    "UNEXPECTED_EOF_WHILE_READING": "it ended the connection during the handshake",
}


class TlsFailure(OSError):
    """The other side is no peer for TLS, or not the one that was wanted."""

    def __init__(self, sentence: str, *, ended: bool = False) -> None:
        """`ended`: the line ended, which another try may not meet again."""
        super().__init__(sentence)
        self.ended = ended

    @classmethod
    def of(cls, reason: str, detail: str = "") -> TlsFailure:
        """From OpenSSL's reason; `detail` is what it says about a certificate."""
        if reason == "CERTIFICATE_VERIFY_FAILED":
            return cls(f"its certificate is not accepted: {detail or 'it cannot be verified'}")
        sentence = SENTENCES.get(reason)
        if sentence is None:
            sentence = f"TLS failed ({reason or 'unknown'})" + (f": {detail}" if detail else "")
        return cls(sentence, ended=reason == "UNEXPECTED_EOF_WHILE_READING")
