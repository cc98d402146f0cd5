"""The keys of Kafka's client configuration with which a client finds a cluster and logs in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raylog.config.authentication import MECHANISMS
from raylog.config.kerberos import SASL_KERBEROS_SERVICE_NAME
from raylog.config.tls import (
    SSL_CIPHER_SUITES,
    SSL_ENABLED_PROTOCOLS,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_TYPE,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
    TlsSettings,
    tls_settings,
)
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer, one_of
from raylog.core.password import Password

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_IGNORED: Final = re.compile(
    r"ssl\.(protocol|provider|engine\.factory\.class|secure\.random\.implementation|(key|trust)manager\.algorithm)"
    r"|sasl\.login\..+|sasl\.kerberos\.(kinit\.cmd|ticket\..+|min\.time\.before\.relogin)|security\.providers"
)
"""Keys of Kafka's Java client for what is decided elsewhere here, or is never needed."""
_PREFIXES: Final = ("security.", "ssl.", "sasl.")
_URL: Final = re.compile(r"(https?://[^/?#]+|file:///)[^\s#]*")

BOOTSTRAP_SERVERS: ConfigKey[str] = ConfigKey(
    "bootstrap.servers",
    ConfigType.STRING,
    "",
    "Addresses of brokers to connect to first: host:port,host:port. Or ray://<cluster>: finds a cluster by its name"
    " in the Ray to which the process is connected.",
)
BOOTSTRAP_CONTROLLERS: ConfigKey[str] = ConfigKey(
    "bootstrap.controllers",
    ConfigType.STRING,
    "",
    "Addresses of controllers to connect to first, in place of bootstrap.servers: for an admin client that works with"
    " the controllers themselves (KIP-919).",
)
SECURITY_PROTOCOL: ConfigKey[str] = ConfigKey(
    "security.protocol",
    ConfigType.STRING,
    "PLAINTEXT",
    "The protocol of the listener that the client connects to.",
    one_of(*SECURITY_PROTOCOLS),
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: ConfigKey[str] = ConfigKey(
    "ssl.endpoint.identification.algorithm",
    ConfigType.STRING,
    "https",
    "https: the broker's certificate must contain the host name that the client connects to. Empty: any name is"
    " accepted.",
    lambda name: None if name.lower() in ("", "https") else "must be https or empty",
    names_elsewhere=("ssl.check.hostname",),
)
SASL_MECHANISM: ConfigKey[str] = ConfigKey(
    "sasl.mechanism", ConfigType.STRING, "GSSAPI", "The SASL mechanism to log in by.", one_of(*MECHANISMS)
)
SASL_JAAS_CONFIG: ConfigKey[Password | None] = ConfigKey(
    "sasl.jaas.config",
    ConfigType.PASSWORD,
    None,
    "The client's credentials, as a JAAS configuration line.",
    names_elsewhere=(
        "sasl.username",
        "sasl.password",
        "sasl.plain.username",
        "sasl.plain.password",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
    ),
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: ConfigKey[str] = ConfigKey(
    "sasl.oauthbearer.token.endpoint.url",
    ConfigType.STRING,
    "",
    "Where a client of OAUTHBEARER gets its token: an https: or http: URL for the client credentials grant, or a file:"
    " URL of a file that contains the token.",
    lambda url: None if not url or _URL.fullmatch(url) else "must be a URL: https:, http: or file:",
)
ISOLATION_LEVEL: ConfigKey[str] = ConfigKey(
    "isolation.level",
    ConfigType.STRING,
    "read_committed",
    "Whether raylog's readers skip the records of aborted transactions, and read no further than the first open one"
    " (read_committed), or read all records (read_uncommitted, Kafka's default).",
    one_of("read_committed", "read_uncommitted"),
)

CONNECTION_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    BOOTSTRAP_SERVERS,
    SECURITY_PROTOCOL,
    SSL_KEYSTORE_TYPE,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEY_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_ENABLED_PROTOCOLS,
    SSL_CIPHER_SUITES,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    SASL_MECHANISM,
    SASL_JAAS_CONFIG,
    SASL_KERBEROS_SERVICE_NAME,
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
)
"""Of every client."""
CLIENT_KEYS: Final = (*CONNECTION_KEYS, ISOLATION_LEVEL)
CLIENT_CONFIG: Final = ConfigSchema(CLIENT_KEYS)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client connects."""

    bootstrap_servers: str
    tls: TlsSettings | None
    """None: without TLS."""
    check_host_name: bool
    sasl_mechanism: str
    """Empty: the client does not log in."""
    jaas: Password | None
    kerberos_service: str
    token_url: str
    isolation_level: str


def client_settings(properties: Mapping[str, str | Password]) -> ClientSettings:
    """From the properties of a Kafka client. Others than those of CLIENT_KEYS are ignored.

    Raises ConfigError for a bad value, and for a key of TLS, SASL or security that raylog does not support.
    """
    texts = {
        name: value.reveal() if isinstance(value, Password) else value
        for name, value in properties.items()
        if is_read_by_client(name)
    }
    configs = Configs(CLIENT_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, CLIENT_CONFIG.parse(texts))])
    protocol = configs[SECURITY_PROTOCOL]
    return ClientSettings(
        bootstrap_servers=configs[BOOTSTRAP_SERVERS],
        tls=tls_settings(configs) if protocol.endswith("SSL") else None,
        check_host_name=configs[SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] != "",
        sasl_mechanism=configs[SASL_MECHANISM] if protocol.startswith("SASL") else "",
        jaas=configs[SASL_JAAS_CONFIG],
        kerberos_service=configs[SASL_KERBEROS_SERVICE_NAME],
        token_url=configs[SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL],
        isolation_level=configs[ISOLATION_LEVEL],
    )


def https_settings(jaas_options: Mapping[str, str]) -> TlsSettings | None:
    """For the https: URLs of OAUTHBEARER, of keys and of tokens: as in Kafka, the options ssl.* of its JAAS entry.

    None if there are none. Raises ConfigError.
    """
    texts = {
        name: text for name, text in jaas_options.items() if name.startswith("ssl.") and not _IGNORED.fullmatch(name)
    }
    if not texts:
        return None
    return tls_settings(Configs(CLIENT_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, CLIENT_CONFIG.parse(texts))]))


def is_read_by_client(name: str) -> bool:
    """Whether `client_settings` reads a property, or refuses it as one of TLS, SASL or security."""
    return name in CLIENT_CONFIG.keys or (name.startswith(_PREFIXES) and not _IGNORED.fullmatch(name))


def is_secret_of_client(name: str) -> bool:
    """Whether the value of a client's key must never be shown."""
    return name in CLIENT_CONFIG.keys and CLIENT_CONFIG.keys[name].is_sensitive
