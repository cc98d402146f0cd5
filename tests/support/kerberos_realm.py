"""(shell) A Kerberos realm for tests: MIT's KDC on 127.0.0.1, with database, keytabs and krb5.conf in one folder.

The library reads the environment variables of `Realm.environment`, which only the processes and blocks that use the
realm should have. The KDC is ended by its process id.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

REALM: Final = "RAYLOG.TEST"
SERVICE: Final = "kafka/localhost"
START_SECONDS: Final = 60.0
TOOL_SECONDS: Final = 60.0
PROGRAMS: Final = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def why_not() -> str | None:
    """Why this machine has no realm; None if it can have one."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt-get install krb5-kdc krb5-admin-server krb5-user"
    if find_spec("gssapi") is None:
        return "the package gssapi is missing: apt-get install libkrb5-dev, then pip install 'raylog[kerberos]'"
    return None


@dataclass(frozen=True, slots=True)
class Realm:
    path: Path
    environment: Mapping[str, str]
    created: set[str] = field(default_factory=set)

    def keytab(self, *principals: str, name: str = "") -> Path:
        """A keytab with new keys of these principals, which are created if they do not exist."""
        path = self.path / f"{name or secrets.token_hex(4)}.keytab"
        for principal in principals:
            if principal not in self.created:
                self._administer("addprinc", "-randkey", principal)
                self.created.add(principal)
            self._administer("ktadd", "-k", str(path), principal)
        return path

    def kinit(self, principal: str, keytab: Path) -> None:
        """Get a ticket into the realm's cache."""
        self.run("kinit", "-k", "-t", str(keytab), principal)

    def kdestroy(self) -> None:
        (self.path / "ccache").unlink(missing_ok=True)

    def _administer(self, *query: str) -> None:
        self.run("kadmin.local", "-r", REALM, *query)

    def run(self, *command: str) -> str:
        """A program of Kerberos, in this realm."""
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": _PATH, **self.environment},
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def kerberos_realm(path: Path) -> Iterator[Realm]:
    """It is gone after the block."""
    path.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (path / "krb5.conf").write_text(
        f"""
[libdefaults]
    default_realm = {REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {REALM}
"""
    )
    (path / "kdc.conf").write_text(
        f"""
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {REALM} = {{
        database_name = {path}/principal
        key_stash_file = {path}/stash
        acl_file = {path}/acl
        max_life = 1h
    }}
[logging]
    kdc = FILE:{path}/kdc.log
"""
    )
    environment = {
        "KRB5_CONFIG": str(path / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(path / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{path}/ccache",
        "KRB5RCACHEDIR": str(path),
    }
    realm = Realm(path, environment)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_hex(16))
    command = [shutil.which("krb5kdc", path=_PATH) or "krb5kdc", "-n", "-r", REALM]
    with (path / "kdc.out").open("wb") as output:
        kdc = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _listens(port):
            assert kdc.poll() is None, (path / "kdc.out").read_text()
            assert time.monotonic() < deadline
        yield realm
    finally:
        kdc.terminate()
        kdc.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        time.sleep(0.05)
        return False
