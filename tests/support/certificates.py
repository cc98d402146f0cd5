"""Key stores and trust stores in the formats that brokers and clients read, in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from raylog.security.authority import Authority, KeyPair

STORE_PASSWORD = "store password"


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority, and the certificates that it has signed."""

    folder: Path
    authority: Authority

    @classmethod
    def new(cls, folder: Path, name: str = "Test authority") -> Certificates:
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority.new(name)
        (folder / "authority.pem").write_bytes(authority.certificate)
        return cls(folder, authority)

    @property
    def trusted(self) -> Path:
        """The authority's certificate."""
        return self.folder / "authority.pem"

    def issue(
        self,
        name: str,
        *hosts: str,
        unit: str | None = None,
        days: float = 30,
        now: datetime | None = None,
    ) -> Path:
        """A PEM file with key and certificate; `<name>.key` and `<name>.crt` hold each alone."""
        pair = self.authority.issue(name, hosts, organizational_unit=unit, days=days, now=now)
        (self.folder / f"{name}.key").write_bytes(pair.key)
        (self.folder / f"{name}.crt").write_bytes(pair.chain)
        path = self.folder / f"{name}.pem"
        path.write_bytes(pair.key + pair.chain)
        return path

    def pkcs12(self, name: str) -> Path:
        """The same key and certificate as a PKCS12 file."""
        path = self.folder / f"{name}.p12"
        path.write_bytes(
            as_pkcs12(KeyPair(*(self.folder.joinpath(f"{name}.{end}").read_bytes() for end in ("key", "crt"))))
        )
        return path


def as_pkcs12(pair: KeyPair) -> bytes:
    key = load_pem_private_key(pair.key, None)
    own, *others = x509.load_pem_x509_certificates(pair.chain)
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"raylog", key, own, others, encryption)  # type: ignore[arg-type]
