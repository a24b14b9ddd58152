"""A certificate authority of one's own: certificates of brokers and clients, in PEM.

Keys are P-256: their handshakes cost a broker a tenth of RSA's. Needs the package cryptography.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_DAYS = 3650
HOUR = datetime.timedelta(hours=1)  # clocks of other machines may be behind


class Pem(NamedTuple):
    """A certificate and its private key."""

    certificate: str
    key: str

    @property
    def store(self) -> str:
        """Both in one file, as Kafka's `ssl.keystore.type=PEM` reads them."""
        return self.key + self.certificate


class Authority:
    """Signs certificates; `pem` is to be kept where nobody else reads it."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime.datetime) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(now + datetime.timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def of(cls, pem: Pem) -> Authority:
        """One that was made before. Raises ValueError for what is none."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        certificate = x509.load_pem_x509_certificate(pem.certificate.encode())
        key = load_pem_private_key(pem.key.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is not of an elliptic curve")
        if key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the authority's certificate")
        return cls(certificate, key)

    @property
    def pem(self) -> Pem:
        return _pem(self._certificate, self._key)

    @property
    def ends(self) -> datetime.datetime:
        return self._certificate.not_valid_after_utc

    def issue(self, name: str, hosts: Sequence[str], now: datetime.datetime, days: int) -> Pem:
        """A new key and its certificate, for a server (with `hosts`) and for a client."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - HOUR)
            .not_valid_after(min(now + datetime.timedelta(days=days), self.ends))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if hosts:
            names = [_general_name(host) for host in dict.fromkeys(hosts)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()), key)


def _name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pem:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Pem(
        certificate.public_bytes(Encoding.PEM).decode(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
