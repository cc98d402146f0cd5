"""(shell) The system's Kerberos library, by the `gssapi` package: an extra, imported only where GSSAPI is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from raylog.core.errors import ConfigError
from raylog.security.sasl.gssapi import GssContext, GssRefused
from raylog.security.sasl.jaas import JaasEntry

LOGIN_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"


def check_package() -> None:
    """Raises ConfigError if the package, or the library of the system, is missing."""
    _package()


def service_of(entry: JaasEntry, service_name: str = "") -> tuple[str, str]:
    """Principal and keytab of a server's JAAS entry. Raises ConfigError.

    `service_name` is sasl.kerberos.service.name, which must be that of the principal.
    """
    if entry.module != LOGIN_MODULE:
        raise ConfigError(f"sasl.jaas.config: must be an entry of {LOGIN_MODULE}")
    principal, keytab = entry.options.get("principal", ""), entry.options.get("keyTab", "")
    if not principal or not keytab:
        raise ConfigError('sasl.jaas.config: must contain keyTab="<file>" and principal="<service>/<host>@<realm>"')
    if service_name and principal.partition("@")[0].partition("/")[0] != service_name:
        raise ConfigError("sasl.kerberos.service.name: is not that of the principal in sasl.jaas.config")
    return principal, keytab.removeprefix("FILE:")


class Acceptor:
    """Authenticates the clients of one principal. The keytab is read at every log-in, so that its keys can change."""

    def __init__(self, principal: str, keytab: str) -> None:
        """Raises ConfigError if the keytab cannot be read, or has no key of the principal."""
        gssapi = _package()
        try:
            with open(keytab, "rb"):
                pass  # the library's message does not name the file
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": f"FILE:{keytab}"}
            )
            self.default_realm = str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
        except (OSError, gssapi.exceptions.GSSError) as error:
            raise ConfigError(f"sasl.jaas.config: the keytab of {principal} cannot be used: {error}") from None

    def new_context(self) -> GssContext:
        return _Context(lambda: _package().SecurityContext(creds=self._credentials, usage="accept"))


def initiator(service_name: str, host: str, entry: JaasEntry | None = None) -> GssContext:
    """The client's end of a log-in at a service. Raises ConfigError.

    `entry` names a principal with a keytab; without it, or with useTicketCache, the tickets of kinit are used.
    """
    gssapi = _package()
    options: Mapping[str, str] = entry.options if entry is not None else {}

    def make() -> Any:
        credentials = None
        if options.get("keyTab") and options.get("useTicketCache", "").lower() != "true":
            principal, keytab = options.get("principal", ""), options["keyTab"].removeprefix("FILE:")
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            # Tickets are used again by later log-ins of this process, but of the same principal only.
            store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:raylog {principal} {keytab}"}
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        target = gssapi.Name(f"{service_name}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        return gssapi.SecurityContext(
            name=target, mech=gssapi.MechType.kerberos, flags=flags, creds=credentials, usage="initiate"
        )

    return _Context(make)


class _Context:
    """A `GssContext`. The library's object is made in the first step, since that may block too."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._context: Any = None

    @property
    def complete(self) -> bool:
        return self._context is not None and bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._guarded(lambda: self._context.initiator_name))

    def step(self, token: bytes | None) -> bytes:
        def step() -> bytes:
            if self._context is None:
                self._context = self._make()
                self._context.__DEFER_STEP_ERRORS__ = False  # an error is raised by the step that has it
            return self._context.step(token) or b""

        return bytes(self._guarded(step))

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._guarded(lambda: self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._guarded(lambda: self._context.unwrap(message).message))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (_package().exceptions.GSSError, UnicodeDecodeError) as error:
            raise GssRefused(str(error)) from None


def _package() -> Any:
    try:
        return import_module("gssapi")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"sasl.enabled.mechanisms: GSSAPI needs the package gssapi, of raylog's extra `kerberos`, and the Kerberos"
            f" library of the system ({error})"
        ) from None
