"""(shell) How a client reaches a cluster and what it reads, from the properties of Kafka's Java client."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from raylog.client.bootstrap import Door, resolve
from raylog.client.given_values import checked_keys, shown
from raylog.config.client import (
    BOOTSTRAP_SERVERS,
    ISOLATION_LEVEL,
    ClientSettings,
    client_settings,
    https_settings,
    is_secret_of_client,
)
from raylog.core.config import ConfigSchema
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.security.sasl.client_credentials import ClientCredentials
from raylog.security.sasl.gssapi import GSSAPI, GssapiClient
from raylog.security.sasl.jaas import JaasEntry, parse_jaas
from raylog.security.sasl.kerberos import check_package, initiator
from raylog.security.sasl.mechanism import SaslClient, authentication_failed
from raylog.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerClient
from raylog.security.sasl.plain import PLAIN, PlainClient
from raylog.security.sasl.scram import NONCE_BYTES, ScramClient, ScramMechanism
from raylog.security.tls import client_context

TOKEN_BYTES_MAX: Final = 512 << 10


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Addresses and properties, as they are sent to the tasks of Spark and Ray Data. Passwords are never shown."""

    bootstrap_servers: str
    properties: Mapping[str, str | Password] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        bootstrap_servers: str | None,
        properties: Mapping[str, Any] | None = None,
        *,
        isolation_level: str | None = None,
    ) -> ClientConfig:
        """The other arguments are used in place of bootstrap.servers and isolation.level in the properties.

        The name of a cluster is resolved now: processes that get the result need not be connected to Ray. Raises
        ConfigError, and KafkaError if the brokers of a named cluster do not respond.
        """
        own = {} if isolation_level is None else {ISOLATION_LEVEL.name: isolation_level}
        checked = checked_properties({**checked_keys("the properties of a client", properties), **own})
        servers = client_settings(checked).bootstrap_servers if bootstrap_servers is None else bootstrap_servers
        if not servers:
            raise ConfigError("bootstrap.servers: must be set")
        if not isinstance(servers, str):
            raise ConfigError(f"bootstrap.servers={shown(servers)}: must be text, such as host:port")
        return cls(resolve(servers).servers, checked)

    def keys_of(self, schema: ConfigSchema) -> dict[str, Any]:
        """What a client with these keys is given: it knows no others."""
        properties = {name: value for name, value in self.properties.items() if name in schema.keys}
        return {**properties, BOOTSTRAP_SERVERS.name: self.bootstrap_servers}

    def dialer(self) -> Dialer:
        """Raises ConfigError."""
        return Dialer(client_settings(self.properties))

    @property
    def reads_committed(self) -> bool:
        """Whether isolation.level is read_committed, as it is by default."""
        return client_settings(self.properties).isolation_level == "read_committed"


def checked_properties(properties: Mapping[str, Any]) -> dict[str, str | Password]:
    """A client's properties as texts, with passwords that cannot be printed. Raises ConfigError."""
    kept: dict[str, str | Password] = {}
    for name, value in properties.items():
        if isinstance(value, Password):
            kept[name] = value
        elif isinstance(value, (str, int, float, os.PathLike)):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            kept[name] = Password(text) if is_secret_of_client(name) else text
        else:
            raise ConfigError(f"{name}: a client's properties must be texts, numbers or booleans")
    Dialer(client_settings(kept))
    return kept


class Dialer:
    """How connections are encrypted and log in, as the client's properties say."""

    by_network = True
    """Whether brokers are reached by their addresses; else by the door alone."""

    def __init__(self, settings: ClientSettings, door: Door | None = None) -> None:
        """Raises ConfigError."""
        self.door = door
        self._settings = settings
        self._login = _login_by(settings)
        if settings.tls is not None:
            client_context(settings.tls, check_host_name=settings.check_host_name)

    @property
    def user(self) -> str | None:
        """The name that the client logs in with; empty if it is not known here, None if it does not log in."""
        if self.is_plain:
            return None
        jaas = self._settings.jaas
        by_name = self._settings.sasl_mechanism == PLAIN or self._settings.sasl_mechanism.startswith("SCRAM-")
        return parse_jaas(jaas.reveal()).options.get("username", "") if jaas is not None and by_name else ""

    @property
    def uses_tls(self) -> bool:
        return self._settings.tls is not None

    @property
    def is_plain(self) -> bool:
        """Whether connections have neither TLS nor a login."""
        return self._settings.tls is None and self._login is None

    def prepare(self, host: str) -> tuple[ssl.SSLContext | None, SaslClient | None]:
        """What a connection to this host needs. Reads files, and may ask another service: it may block.

        Raises KafkaError and ConfigError.
        """
        return self._context(), None if self._login is None else self._login(host)

    def _context(self) -> ssl.SSLContext | None:
        tls = self._settings.tls
        return None if tls is None else client_context(tls, check_host_name=self._settings.check_host_name)


def _login_by(settings: ClientSettings) -> Callable[[str], SaslClient] | None:
    """Begins an exchange with the broker on a host; None if the client does not log in. Raises ConfigError."""
    mechanism = settings.sasl_mechanism
    if not mechanism:
        return None
    if mechanism == GSSAPI:
        return _kerberos_login(settings)
    if settings.jaas is None and not (mechanism == OAUTHBEARER and settings.token_url.startswith("file:")):
        raise ConfigError(f"sasl.jaas.config: must be set, since sasl.mechanism is {mechanism}")
    if mechanism == OAUTHBEARER:
        token = _token_source(settings)
        return lambda _: _with_token(token())
    assert settings.jaas is not None
    entry = parse_jaas(settings.jaas.reveal())
    user, password = _option(entry, "username"), Password(_option(entry, "password"))
    if mechanism == PLAIN:
        return lambda _: PlainClient(user, password)
    scram, is_token = ScramMechanism.named(mechanism), entry.options.get("tokenauth", "").lower() == "true"
    return lambda _: ScramClient(scram, user, password, nonce=os.urandom(NONCE_BYTES), is_token=is_token)


def _kerberos_login(settings: ClientSettings) -> Callable[[str], SaslClient]:
    """Raises ConfigError."""
    check_package()
    entry = None if settings.jaas is None else parse_jaas(settings.jaas.reveal())
    service = settings.kerberos_service or ("" if entry is None else entry.options.get("serviceName", ""))
    if not service:
        raise ConfigError("sasl.kerberos.service.name: must be set, since sasl.mechanism is GSSAPI")
    return lambda host: GssapiClient(initiator(service, host, entry))


def _token_source(settings: ClientSettings) -> Callable[[], Password]:
    """Raises ConfigError."""
    url = settings.token_url
    if not url:
        raise ConfigError("sasl.oauthbearer.token.endpoint.url: must be set, since sasl.mechanism is OAUTHBEARER")
    if url.startswith("file:"):
        return partial(_token_in_file, unquote(urlsplit(url).path))
    assert settings.jaas is not None
    entry = parse_jaas(settings.jaas.reveal())
    secret = Password(_option(entry, "clientSecret"))
    scope, tls = entry.options.get("scope", ""), https_settings(entry.options)
    return ClientCredentials(url, _option(entry, "clientId"), secret, scope=scope, tls=tls)


def _with_token(token: Password) -> SaslClient:
    """Raises KafkaError."""
    try:
        return OAuthBearerClient(token)
    except ValueError as error:
        raise authentication_failed(str(error)) from None


def _token_in_file(path: str) -> Password:
    """Raises KafkaError."""
    try:
        with open(path, encoding="ascii") as file:
            return Password(file.read(TOKEN_BYTES_MAX).strip())
    except (OSError, UnicodeDecodeError) as error:
        raise authentication_failed(f"no token: {path}: {getattr(error, 'strerror', 'is not ASCII text')}") from None


def _option(entry: JaasEntry, name: str) -> str:
    """Raises ConfigError."""
    value = entry.options.get(name, "")
    if not value:
        raise ConfigError(f'sasl.jaas.config: must contain {name}="..."')
    return value
