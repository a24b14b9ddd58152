"""A certificate authority for tests: certificates of servers and clients, as PEM and PKCS12."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the authority that signed it."""

    certificate: x509.Certificate
    key: Key
    authority: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def authority_pem(self) -> str:
        return self.authority.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, encryption).decode()

    def write_pem(self, path: Path, password: str = "") -> Path:
        """Key and certificate in one file, as Kafka reads them."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def write_parts(self, directory: Path, name: str) -> tuple[Path, Path, Path]:
        """Key, certificate and authority in files of their own, as librdkafka wants them."""
        parts = {"key": self.key_pem(), "crt": self.certificate_pem, "ca": self.authority_pem}
        paths = [directory / f"{name}.{suffix}" for suffix in parts]
        for path, text in zip(paths, parts.values(), strict=True):
            path.write_text(text)
        return paths[0], paths[1], paths[2]

    def write_pkcs12(self, path: Path, password: str) -> Path:
        encryption = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", self.key, self.certificate, [self.authority], encryption
            )
        )
        return path


class Authority:
    """Signs what a test needs."""

    def __init__(self, name: str = "test authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() - DAY)
            .not_valid_after(now() + 100 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def issue(
        self,
        common_name: str,
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        key: Key | None = None,
        days: float = 50,
        organization: str = "",
    ) -> Identity:
        key = key or ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        end = now() + datetime.timedelta(days=days)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now(), end) - DAY)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName(general_names(hosts)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return Identity(certificate, key, self.certificate)


def general_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


@cache
def authority() -> Authority:
    """One for a whole test run."""
    return Authority()


@cache
def server_identity() -> Identity:
    return authority().issue("broker")
