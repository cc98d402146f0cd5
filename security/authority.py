"""(shell) A certificate authority of one's own: signs certificates for brokers and clients. Source: RFC 5280."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 398
"""Java and browsers accept no more."""
BACKDATED = timedelta(hours=1)
"""Certificates are valid from a little before now: clocks of other hosts may be behind."""


class KeyPair(NamedTuple):
    """A private key and the certificates that belong to it, its own first, in PEM format."""

    key: bytes
    chain: bytes


class Authority:
    """The authority's key must be kept secret: who has it can be any broker and any client."""

    def __init__(self, pair: KeyPair) -> None:
        """Raises ValueError if the key or the certificate cannot be read."""
        key = load_pem_private_key(pair.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key must be an elliptic curve key")
        self.pair = pair
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(pair.chain)

    @property
    def certificate(self) -> bytes:
        """In PEM format: what others trust."""
        return self.pair.chain

    @classmethod
    def new(cls, name: str, *, now: datetime | None = None) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        began = (now or datetime.now(UTC)) - BACKDATED
        certificate = (
            _builder(subject, subject, key.public_key(), began, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(KeyPair(_pem(key), certificate.public_bytes(Encoding.PEM)))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        organizational_unit: str | None = None,
        days: float = CERTIFICATE_DAYS,
        now: datetime | None = None,
    ) -> KeyPair:
        """A new key with a certificate for servers on these host names and addresses, and for clients."""
        key = new_key()
        request = signing_request(key)
        chain = self.sign(request, name, hosts, organizational_unit=organizational_unit, days=days, now=now)
        return KeyPair(key, chain)

    def sign(
        self,
        request: bytes,
        name: str,
        hosts: Sequence[str] = (),
        *,
        organizational_unit: str | None = None,
        days: float = CERTIFICATE_DAYS,
        now: datetime | None = None,
    ) -> bytes:
        """The certificate for the key of a `signing_request`, of which nothing else is used. Raises ValueError."""
        signed = x509.load_pem_x509_csr(request)
        key = signed.public_key()
        if not signed.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("the request is not signed with an elliptic curve key of its own")
        subject = _name(name, organizational_unit)
        began = (now or datetime.now(UTC)) - BACKDATED
        builder = (
            _builder(subject, self._certificate.subject, key, began, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def new_key() -> bytes:
    """A private key in PEM format."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def signing_request(key: bytes) -> bytes:
    """Asks an authority, in PEM format, for a certificate of this key, which itself stays where it is."""
    private = load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return request.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM)


def needs_renewal(pem: bytes, hosts: Sequence[str], authority: bytes, *, now: datetime | None = None) -> bool:
    """Whether this is not a certificate of the authority for all these hosts of which a third of its time is left."""
    try:
        certificate, issuer = x509.load_pem_x509_certificate(pem), x509.load_pem_x509_certificate(authority)
        certificate.verify_directly_issued_by(issuer)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    began, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left = ends - (now or datetime.now(UTC))
    return 3 * left < ends - began or not {_host(host) for host in hosts} <= set(names)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, began: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + BACKDATED + timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organizational_unit: str | None = None) -> x509.Name:
    attributes = [] if organizational_unit is None else [(NameOID.ORGANIZATIONAL_UNIT_NAME, organizational_unit)]
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in (*attributes, (NameOID.COMMON_NAME, common_name))])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
