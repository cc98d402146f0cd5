"""(shell) The certificates of a secure cluster: an authority on one host, and a certificate for each node.

security/authority.key   the authority's key, on that host only
security/authority.pem   its certificate, which clients and nodes trust
security/broker-0.pem    key and certificate of broker 0, on its host; the key never leaves it

A node gets its certificate when it starts, and renews it when two thirds of its time have passed, or when it gets other
addresses. Brokers show it to clients. If the hosts are several machines, nodes show it to each other. Access to the Ray
cluster alone decides who can have a certificate signed.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from raylog.actors.data_dir import ClusterFiles, write_atomically
from raylog.config.network import INTER_BROKER_LISTENER_NAME, LISTENER_SECURITY_PROTOCOL_MAP
from raylog.config.tls import (
    SSL_CLIENT_AUTH,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_TYPE,
)
from raylog.core.config import LISTENER_PREFIX
from raylog.core.errors import ConfigError
from raylog.security.authority import Authority, KeyPair, needs_renewal, new_key, signing_request

log = logging.getLogger("raylog.actors")
FOLDER: Final = "security"
INTERNAL: Final = INTER_BROKER_LISTENER_NAME.default
NODES_UNIT: Final = "nodes"
"""The organizational unit in the certificates."""


def authority_path(root: Path) -> Path:
    return root / FOLDER / "authority.pem"


def certificate_path(root: Path, node: str) -> Path:
    """The file with key and certificate of a node."""
    return root / FOLDER / f"{node}.pem"


def with_certificates(texts: Mapping[str, Any], root: Path, node: str, *, clients: bool, nodes: bool) -> dict[str, Any]:
    """A node's configuration, with its certificate for `clients` and for other `nodes`, where it says nothing else."""
    keys = {SSL_KEYSTORE_TYPE.name: "PEM", SSL_KEYSTORE_LOCATION.name: str(certificate_path(root, node))}
    internal = f"{LISTENER_PREFIX}{INTERNAL.lower()}."
    mutual = {
        **keys,
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        SSL_TRUSTSTORE_LOCATION.name: str(authority_path(root)),
        SSL_CLIENT_AUTH.name: "required",
    }
    made = {**(keys if clients else {}), **{internal + key: value for key, value in mutual.items()}, **texts}
    protocols = str(made.get(LISTENER_SECURITY_PROTOCOL_MAP.name, ""))
    if nodes and f"{INTERNAL}:" not in protocols.upper():
        made[LISTENER_SECURITY_PROTOCOL_MAP.name] = f"{protocols},{INTERNAL}:SSL".strip(",")
    return made


def make_authority(root: Path, name: str) -> None:
    """Create the authority of a cluster in its data directory on this host, unless it exists. Raises ConfigError.

    If its key has been lost it is not replaced, since clients trust its certificate: nodes keep the certificates that
    they have as long as these are valid.
    """
    path = authority_path(root)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            pair = Authority.new(f"raylog {name}").pair
            write_atomically(_key_path(root), pair.key)
            write_atomically(path, pair.chain)
    except OSError as error:
        raise ConfigError(f"data_dir={str(root)!r}: {error}") from error


def sign_here(root: Path, node: str, hosts: Sequence[str], request: bytes) -> tuple[bytes, bytes]:
    """A node's certificate and that of the authority, whose key is on this host. Raises ConfigError."""
    path = authority_path(root)
    try:
        authority = Authority(KeyPair(_key_path(root).read_bytes(), path.read_bytes()))
        return authority.sign(request, node, hosts, organizational_unit=NODES_UNIT), authority.certificate
    except (OSError, ValueError) as error:
        raise ConfigError(f"data_dir={str(root)!r}: the certificate authority cannot be used: {error}") from error


def ensure_certificate(files: ClusterFiles, node: str, hosts: Sequence[str]) -> bool:
    """Give a node on this host a certificate for these host names and addresses, and for those of this machine.

    Returns whether it is a new one. Raises ConfigError if it cannot have one; while the one that it has is still valid,
    that is only logged. May block.
    """
    path, trusted = certificate_path(files.path, node), authority_path(files.path)
    wanted = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()]))
    wanted = [host for host in wanted if host]
    present, authority = _read(path), _read(trusted)
    if not needs_renewal(_certificates_in(present), wanted, authority):
        return False
    key = new_key()
    try:
        chain, authority = _signed(files, node, wanted, signing_request(key))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, key + chain)
        write_atomically(trusted, authority)
    except (ConfigError, OSError) as error:
        if not _is_valid(_certificates_in(present)):
            raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error
        log.warning("certificate not renewed", extra={"node": node, "reason": str(error)})
        return False
    log.info("certificate issued", extra={"node": node, "hosts": ",".join(wanted)})
    return True


def _signed(files: ClusterFiles, node: str, hosts: Sequence[str], request: bytes) -> tuple[bytes, bytes]:
    """Raises ConfigError."""
    import ray

    from raylog.actors.placement import alive_hosts, on_hosts

    host = alive_hosts().get(files.authority_host)
    if host is None:
        raise ConfigError(
            f"{node} needs a certificate, but the host with the key of the authority is not alive:"
            f" {files.authority_host}"
        )
    try:
        [answer] = on_hosts([host], sign_here, files.path, node, hosts, request)
    except ray.exceptions.RayError as error:
        raise ConfigError(f"{node} needs a certificate: {error}") from error
    return answer


def _key_path(root: Path) -> Path:
    return root / FOLDER / "authority.key"


def _read(path: Path) -> bytes:
    """Empty if there is no such file."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _certificates_in(pem: bytes) -> bytes:
    """Without the key before them."""
    return pem[max(0, pem.find(b"-----BEGIN CERTIFICATE")) :]


def _is_valid(pem: bytes) -> bool:
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc > datetime.now(UTC)
    except ValueError:
        return False
