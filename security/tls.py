"""(shell) TLS contexts from key stores and trust stores, in PEM files, PEM texts or PKCS12 files.

Private keys reach OpenSSL through an anonymous file in memory: the `ssl` module takes them from files only.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from raylog.core.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from raylog.config.tls import StoreSettings, TlsSettings
    from raylog.core.password import Password

STORE_BYTES_MAX: Final = 16 << 20
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS_1_3_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For a listener. Reads the files. Raises ConfigError that names the key."""
    context = _context(settings, ssl.PROTOCOL_TLS_SERVER)
    _load_keys(context, settings.keys)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings.trust)
    return context


def client_context(settings: TlsSettings, *, check_host_name: bool) -> ssl.SSLContext:
    """For connections to brokers. Without a trust store the system's authorities are trusted. Raises ConfigError."""
    context = _context(settings, ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_host_name
    if settings.keys.location or settings.keys.certificates:
        _load_keys(context, settings.keys)
    if settings.trust.location or settings.trust.certificates:
        _load_trust(context, settings.trust)
    else:
        context.load_default_certs()
    return context


def tls_failure(error: ssl.SSLError) -> str:
    """What was wrong, in OpenSSL's words; for a certificate that was refused, what is wrong with it."""
    return getattr(error, "verify_message", "") or error.reason or str(error)


def check_links(settings: TlsSettings) -> None:
    """For links between nodes: check that a node with these keys accepts another one. Raises ConfigError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_context(settings, check_host_name=False).wrap_bio(to_client, to_server),
        server_context(settings).wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                rule = "the certificate of the node is not accepted by ssl.truststore"
                raise ConfigError(f"{_key_source(settings.keys)}: {rule}: {tls_failure(error)}") from error
            sides.remove(side)


def store_files(settings: TlsSettings) -> tuple[str, ...]:
    """The files that the context is made from."""
    return tuple(location for location in (settings.keys.location, settings.trust.location) if location)


def _context(settings: TlsSettings, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.options |= ssl.OP_NO_RENEGOTIATION
    enabled = {_VERSIONS[name] for name in settings.protocols}
    if settings.cipher_suites:
        enabled &= _choose_suites(context, settings.cipher_suites)
        if not enabled:
            raise ConfigError("ssl.cipher.suites: none of them can be used with ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    return context


def _choose_suites(context: ssl.SSLContext, names: tuple[str, ...]) -> set[ssl.TLSVersion]:
    """Permit only these suites; returns the versions of TLS that have one of them."""
    versions = set()
    if newer := _TLS_1_3_SUITES.intersection(names):
        if newer != _TLS_1_3_SUITES:
            missing = ", ".join(sorted(_TLS_1_3_SUITES - newer))
            raise ConfigError(f"ssl.cipher.suites: those of TLS 1.3 are used all together; {missing} is missing")
        versions.add(ssl.TLSVersion.TLSv1_3)
    if older := [_openssl_name(name) for name in names if name not in _TLS_1_3_SUITES]:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(names)}") from error
        versions.add(ssl.TLSVersion.TLSv1_2)
    return versions


def _openssl_name(name: str) -> str:
    """OpenSSL's name of an IANA suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, ECDHE-RSA-AES128-GCM-SHA256.

    Raises ConfigError for a suite that OpenSSL does not have.
    """
    words = name.removeprefix("TLS_").replace("_WITH_", "_").split("_")
    text = "-".join(words).replace("AES-128", "AES128").replace("AES-256", "AES256").removeprefix("RSA-")
    text = text.replace("-CBC-SHA", "-SHA").replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
    known = {cipher["name"] for cipher in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}
    if not name.startswith("TLS_") or text not in known:
        raise ConfigError(f"ssl.cipher.suites: {name!r} is unknown, or too weak for OpenSSL")
    return text


def _load_keys(context: ssl.SSLContext, store: StoreSettings) -> None:
    """Raises ConfigError."""
    key, chain = _key_and_chain(store)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)
    with _in_memory(pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(f"{_key_source(store)}: the private key does not belong to the certificate") from error


def _key_and_chain(store: StoreSettings) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    """The private key, and its certificates with its own first. Raises ConfigError."""
    source = _key_source(store)
    if store.location and (store.key is not None or store.certificates):
        raise ConfigError("ssl.keystore.location and ssl.keystore.key exclude each other: set only one of them")
    if store.location:
        data = _read("ssl.keystore.location", store.location)
        if store.type != "PEM":
            return _from_pkcs12(store, data)
        key_data = chain_data = data
    elif store.key is not None and store.certificates:
        if store.type != "PEM":
            raise ConfigError(f"ssl.keystore.type={store.type!r}: must be PEM, since ssl.keystore.key is set")
        key_data, chain_data = store.key.reveal().encode(), store.certificates.encode()
    else:
        raise ConfigError(
            "ssl.keystore.location: must be set for a listener with TLS, or ssl.keystore.key with"
            " ssl.keystore.certificate.chain"
        )
    password = store.key_password
    try:
        key = load_pem_private_key(key_data, None if password is None else password.reveal().encode())
    except TypeError as error:
        rule = (
            "is encrypted, and ssl.key.password is not set"
            if password is None
            else "is not encrypted: remove ssl.key.password"
        )
        raise ConfigError(f"{source}: the private key {rule}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        opens = "" if password is None else " that ssl.key.password opens"
        raise ConfigError(f"{source}: no private key in PEM format{opens}") from error
    return key, _certificates(source, chain_data)


def _from_pkcs12(store: StoreSettings, data: bytes) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    key, own, others = _open_pkcs12("ssl.keystore", store, data)
    if key is None or own is None:
        raise ConfigError(f"ssl.keystore.location={store.location!r}: contains no private key with a certificate")
    return key, [own, *others]


def _load_trust(context: ssl.SSLContext, store: StoreSettings) -> None:
    """Raises ConfigError."""
    if store.location and store.certificates:
        raise ConfigError(
            "ssl.truststore.location and ssl.truststore.certificates exclude each other: set only one of them"
        )
    if store.location:
        data = _read("ssl.truststore.location", store.location)
        if store.type == "PEM":
            trusted = _certificates(f"ssl.truststore.location={store.location!r}", data)
        else:
            _, own, others = _open_pkcs12("ssl.truststore", store, data)
            trusted = [certificate for certificate in (own, *others) if certificate is not None]
    elif store.certificates:
        if store.type != "PEM":
            raise ConfigError(
                f"ssl.truststore.type={store.type!r}: must be PEM, since ssl.truststore.certificates is set"
            )
        trusted = _certificates("ssl.truststore.certificates", store.certificates.encode())
    else:
        raise ConfigError(
            "ssl.truststore.location: must be set, since ssl.client.auth asks for certificates of clients"
        )
    if not trusted:
        raise ConfigError(f"ssl.truststore.location={store.location!r}: contains no certificate")
    try:
        context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore: OpenSSL accepts no such certificate: {tls_failure(error)}") from error


def _open_pkcs12(
    prefix: str, store: StoreSettings, data: bytes
) -> tuple[PrivateKeyTypes | None, x509.Certificate | None, list[x509.Certificate]]:
    """Raises ConfigError."""
    where = f"{prefix}.location={store.location!r}"
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{where}: is a JKS file, which only Java reads. Convert it: keytool -importkeystore -srckeystore"
            f" {store.location} -destkeystore {Path(store.location).stem}.p12 -deststoretype PKCS12"
        )
    password: Password | None = store.password
    try:
        key, own, others = pkcs12.load_key_and_certificates(
            data, None if password is None else password.reveal().encode()
        )
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{where}: no PKCS12 file that {prefix}.password opens") from error
    return key, own, others


def _certificates(source: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ConfigError(f"{source}: no certificate in PEM format") from error


def _key_source(store: StoreSettings) -> str:
    return f"ssl.keystore.location={store.location!r}" if store.location else "ssl.keystore.key"


def _read(key: str, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}={location!r}: {error}") from error
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(f"{key}={location!r}: is larger than {STORE_BYTES_MAX} bytes")
    return data


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The path of a file with this content that only this process sees."""
    descriptor = os.memfd_create("raylog-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
