"""A user's credentials: when they are due, and how they are made. Only this module makes passwords.

What is in force is the content of a Secret (on Kubernetes) or a file (of a local cluster), with annotations.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from kraft_operator.api.user import USER_NAME_CHARS_MAX, UserAuthentication
from kraft_operator.security.certificates import Authority, CertificateError, ends_at, is_issued_by, issue
from kraft_operator.specs.client_config import CERTIFICATE_FILE, CONTROLLERS_CERTIFICATE, CONTROLLERS_KEY, KEY_FILE
from kraft_protocol.sasl.jaas import parse_jaas

PASSWORD_BYTES: Final = 24
STORE_FILE: Final = "user.p12"
STORE_PASSWORD: Final = "user.password"  # noqa: S105
RENEWAL: Final = 1 / 3
"""A certificate is renewed when this part of its life is left."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials in force. `data` are entries of the Secret that cannot be computed again."""

    id: str
    at: str
    """When they were made, as Kubernetes writes times."""
    rotation: str
    """The value of the annotation `rotate` for which they were made."""
    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def text(self, entry: str) -> str:
        """An entry as text; empty if it is missing."""
        return self.data.get(entry, b"").decode(errors="replace")

    @property
    def expires(self) -> datetime | None:
        """When the certificate ends; None without one."""
        return ends_at(self.text(CERTIFICATE_FILE)) if CERTIFICATE_FILE in self.data else None


def time_text(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def password_due(issued: Issued | None, wanted: UserAuthentication, rotation: str, now: datetime) -> bool:
    """Whether a new password must be generated."""
    return issued is None or not issued.data.get("password") or _rotates(issued, wanted, rotation, now)


def certificate_due(
    issued: Issued | None, user: str, wanted: UserAuthentication, rotation: str, authority: Authority, now: datetime
) -> bool:
    """Whether a new certificate must be issued."""
    if issued is None or not issued.data.get(KEY_FILE) or _rotates(issued, wanted, rotation, now):
        return True
    return _is_due(issued.text(CERTIFICATE_FILE), user, wanted, authority, now)


def _is_due(text: str, user: str, wanted: UserAuthentication, authority: Authority, now: datetime) -> bool:
    """Whether a user's certificate must be replaced, because of its content, its authority, or its end."""
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        names = [one.value for one in found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        if names != [user] or not is_issued_by(text, authority.certificate):
            return True
        longest = min(now + timedelta(days=wanted.valid_days), ends_at(authority.certificate))
        left = found.not_valid_after_utc - now
        # An authority that ends soon can issue nothing that lasts longer.
        return left < timedelta(days=wanted.valid_days) * RENEWAL and longest > found.not_valid_after_utc
    except (ValueError, CertificateError):
        return True


def name_problem(user: str) -> str:
    """Why a user cannot be the common name of a certificate; empty if it can."""
    if len(user) <= USER_NAME_CHARS_MAX:
        return ""
    text = f"the name {user} has {len(user)} characters, and a certificate has room for {USER_NAME_CHARS_MAX}"
    return f"{text}: make another KRaftUser with spec.userName, or use a password"


def edited(issued: Issued, jaas: str, now: datetime) -> Issued | None:
    """The credentials with a password that a person wrote into the Secret; None if it is the issued one.

    `jaas` is the entry `sasl.jaas.config` of the Secret, which was written together with the issued password.
    """
    try:
        was = parse_jaas(jaas).options.get("password", "")
    except ValueError:
        was = ""
    if issued.text("password") == was:
        return None
    return Issued(uuid.uuid4().hex, time_text(now), issued.rotation, issued.data)


def _rotates(issued: Issued, wanted: UserAuthentication, rotation: str, now: datetime) -> bool:
    if rotation and issued.rotation != rotation:
        return True
    if wanted.rotate_after_days is None:
        return False
    try:
        made = datetime.strptime(issued.at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return True
    return now - made >= timedelta(days=wanted.rotate_after_days)


def new_password(rotation: str, now: datetime) -> Issued:
    """Generate a password."""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    return Issued(uuid.uuid4().hex, time_text(now), rotation, {"password": password.encode()})


def new_certificate(
    user: str, wanted: UserAuthentication, rotation: str, authority: Authority, now: datetime
) -> Issued:
    """Issue a certificate, with a key of its own, as PEM files and as PKCS12. Raises CertificateError."""
    leaf = issue(authority, {"CN": user}, now, wanted.valid_days)
    store_password = secrets.token_urlsafe(PASSWORD_BYTES)
    chain = x509.load_pem_x509_certificates(leaf.chain.encode())
    key = load_pem_private_key(leaf.key.encode(), None)
    store = serialize_key_and_certificates(
        user.encode(),
        key,  # type: ignore[arg-type]
        chain[0],
        chain[1:],
        BestAvailableEncryption(store_password.encode()),
    )
    data = {
        CERTIFICATE_FILE: leaf.chain.encode(),
        KEY_FILE: leaf.key.encode(),
        STORE_FILE: store,
        STORE_PASSWORD: store_password.encode(),
    }
    return Issued(uuid.uuid4().hex, time_text(now), rotation, data)


def for_controllers(
    before: Mapping[str, bytes],
    subject: Mapping[str, str],
    wanted: UserAuthentication,
    authority: Authority,
    now: datetime,
    *,
    is_new: bool,
) -> dict[str, bytes]:
    """The entries with which a user reaches the controllers: those of `before`, unless they are due or `is_new`.

    `authority` is the cluster's. Raises CertificateError.
    """
    names = CONTROLLERS_CERTIFICATE, CONTROLLERS_KEY
    text = before.get(CONTROLLERS_CERTIFICATE, b"").decode(errors="replace")
    if not is_new and before.get(CONTROLLERS_KEY) and not _is_due(text, subject["CN"], wanted, authority, now):
        return {name: before[name] for name in names}
    leaf = issue(authority, subject, now, wanted.valid_days)
    return dict(zip(names, (leaf.chain.encode(), leaf.key.encode()), strict=True))
