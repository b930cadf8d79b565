"""Certificates for tests: an authority, and keys that it signs, as PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

PASSWORD = "changeit"
LOCAL = ("localhost", "127.0.0.1", "::1")
_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority. Files go to `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name.from_rfc4514_string(f"CN={name}")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = (
            _builder(self.name, self.name, self._key)
            .add_extension(basic, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, subject: str = "CN=node", names: tuple[str, ...] = LOCAL, file: str | None = None) -> Issued:
        """A key and its certificate for `subject` (RFC 4514) with alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(x509.Name.from_rfc4514_string(subject), self.name, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(self, key, certificate, file or subject.partition("=")[2].partition(",")[0].replace(" ", "-"))


class Issued:
    """A key with its certificate, as files in several formats."""

    def __init__(
        self, by: Authority, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, file: str
    ) -> None:
        self._by, self._key, self.certificate = by, key, certificate
        self._stem = by.folder / file

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_text(self) -> str:
        """PKCS#8 PEM."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def encrypted_key_text(self, password: str = PASSWORD) -> str:
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        ).decode()

    @property
    def chain_text(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @cached_property
    def pem(self) -> Path:
        """Key and chain in one file, as `ssl.keystore.location` names them."""
        path = self._stem.with_suffix(".pem")
        path.write_text(self.key_text + self.chain_text)
        return path

    @cached_property
    def key(self) -> Path:
        path = self._stem.with_suffix(".key")
        path.write_text(self.key_text)
        return path

    @cached_property
    def chain(self) -> Path:
        path = self._stem.with_suffix(".crt")
        path.write_text(self.chain_text)
        return path

    @cached_property
    def p12(self) -> Path:
        """PKCS12 with the authority's certificate, under PASSWORD."""
        path = self._stem.with_suffix(".p12")
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node", self._key, self.certificate, [self._by.certificate], encryption
            )
        )
        return path

    def stores(self, *, trust: Authority | None = None) -> dict[str, str]:
        """The keys of a node or client that has this certificate and trusts its authority."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str((trust or self._by).path),
        }


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
    )
