"""TLS: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType, one_of
from raylog.core.password import Password

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_STORE_TYPE: Final = (
    "Format of the file: PEM or PKCS12. With JKS, Kafka's default, a PKCS12 file is accepted as Java does; a file that"
    " Java has written in its own format must be converted with keytool."
)

SSL_KEYSTORE_TYPE: ConfigKey[str] = ConfigKey(
    "ssl.keystore.type",
    ConfigType.STRING,
    "JKS",
    _STORE_TYPE,
    one_of(*STORE_TYPES),
    per_listener=True,
    dynamic_per_listener=True,
)
SSL_KEYSTORE_LOCATION: ConfigKey[str] = ConfigKey(
    "ssl.keystore.location",
    ConfigType.STRING,
    "",
    "File with the private key of the broker, or of the client, and its certificate chain. A broker reads it again when"
    " it changes.",
    per_listener=True,
    dynamic_per_listener=True,
    names_elsewhere=("ssl.certificate.location", "ssl.certfile", "ssl.key.location", "ssl.keyfile"),
)
SSL_KEYSTORE_PASSWORD: ConfigKey[Password | None] = ConfigKey(
    "ssl.keystore.password",
    ConfigType.PASSWORD,
    None,
    "Password of a PKCS12 file in ssl.keystore.location.",
    per_listener=True,
    dynamic_per_listener=True,
)
SSL_KEYSTORE_KEY: ConfigKey[Password | None] = ConfigKey(
    "ssl.keystore.key",
    ConfigType.PASSWORD,
    None,
    "The private key itself, in PEM format, in place of ssl.keystore.location. Requires ssl.keystore.type=PEM.",
    per_listener=True,
    dynamic_per_listener=True,
    names_elsewhere=("ssl.key.pem",),
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: ConfigKey[str] = ConfigKey(
    "ssl.keystore.certificate.chain",
    ConfigType.STRING,
    "",
    "The certificates that belong to ssl.keystore.key, in PEM format, its own first.",
    per_listener=True,
    dynamic_per_listener=True,
    names_elsewhere=("ssl.certificate.pem",),
)
SSL_KEY_PASSWORD: ConfigKey[Password | None] = ConfigKey(
    "ssl.key.password",
    ConfigType.PASSWORD,
    None,
    "Password of the private key in a PEM file or in ssl.keystore.key.",
    per_listener=True,
    dynamic_per_listener=True,
)
SSL_TRUSTSTORE_TYPE: ConfigKey[str] = ConfigKey(
    "ssl.truststore.type",
    ConfigType.STRING,
    "JKS",
    _STORE_TYPE,
    one_of(*STORE_TYPES),
    per_listener=True,
    dynamic_per_listener=True,
)
SSL_TRUSTSTORE_LOCATION: ConfigKey[str] = ConfigKey(
    "ssl.truststore.location",
    ConfigType.STRING,
    "",
    "File with the certificates of the authorities that sign the certificates of peers. A broker reads it again when it"
    " changes.",
    per_listener=True,
    dynamic_per_listener=True,
    names_elsewhere=("ssl.ca.location", "ssl.cafile"),
)
SSL_TRUSTSTORE_PASSWORD: ConfigKey[Password | None] = ConfigKey(
    "ssl.truststore.password",
    ConfigType.PASSWORD,
    None,
    "Password of a PKCS12 file in ssl.truststore.location.",
    per_listener=True,
    dynamic_per_listener=True,
)
SSL_TRUSTSTORE_CERTIFICATES: ConfigKey[str] = ConfigKey(
    "ssl.truststore.certificates",
    ConfigType.STRING,
    "",
    "The certificates of the authorities, in PEM format, in place of ssl.truststore.location. Requires"
    " ssl.truststore.type=PEM.",
    per_listener=True,
    dynamic_per_listener=True,
    names_elsewhere=("ssl.ca.pem",),
)
SSL_CLIENT_AUTH: ConfigKey[str] = ConfigKey(
    "ssl.client.auth",
    ConfigType.STRING,
    "none",
    "Whether clients must have a certificate: required, requested (a client may have none, and is then"
    " User:ANONYMOUS), or none. On a listener with security protocol SASL_SSL it applies only with the listener's"
    " prefix, and does not name the client.",
    one_of("required", "requested", "none"),
    per_listener=True,
)
SSL_ENABLED_PROTOCOLS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "ssl.enabled.protocols",
    ConfigType.LIST,
    PROTOCOLS,
    f"The versions of TLS that may be used: {' and '.join(PROTOCOLS)}.",
    lambda names: None if names and set(names) <= set(PROTOCOLS) else f"must be one or more of {', '.join(PROTOCOLS)}",
    per_listener=True,
)
SSL_CIPHER_SUITES: ConfigKey[tuple[str, ...]] = ConfigKey(
    "ssl.cipher.suites",
    ConfigType.LIST,
    (),
    "The cipher suites that may be used, by their IANA names; empty for OpenSSL's default. Those of TLS 1.3 can"
    " only be used all together or not at all.",
    per_listener=True,
)
SSL_PRINCIPAL_MAPPING_RULES: ConfigKey[str] = ConfigKey(
    "ssl.principal.mapping.rules",
    ConfigType.STRING,
    "DEFAULT",
    "How the name of a client is made from the distinguished name in its certificate: rules of the form"
    " RULE:pattern/replacement/[LU], separated by commas; the first that matches is used (KIP-371). DEFAULT is the"
    " distinguished name itself.",
    per_listener=True,
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where keys or certificates come from: a file, or texts in PEM format."""

    type: str
    location: str
    password: Password | None
    certificates: str
    key: Password | None = None
    key_password: Password | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of one listener, or of a client."""

    keys: StoreSettings
    trust: StoreSettings
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    """IANA names; empty for the default."""
    mapping_rules: str
    """From distinguished names to principals."""


def listener_tls_settings(configs: Configs, listener: str, *, by_sasl: bool) -> TlsSettings:
    """Of one listener. With SASL its clients need no certificate, unless its own ssl.client.auth says so (KIP-684)."""
    settings = tls_settings(configs.for_listener(listener))
    if by_sasl and listener.lower() not in configs.overrides(SSL_CLIENT_AUTH):
        return replace(settings, client_auth="none")
    return settings


def tls_settings(own: Configs) -> TlsSettings:
    """From the configuration of one listener, or of a client."""
    return TlsSettings(
        keys=StoreSettings(
            type=own[SSL_KEYSTORE_TYPE],
            location=own[SSL_KEYSTORE_LOCATION],
            password=own[SSL_KEYSTORE_PASSWORD],
            certificates=own[SSL_KEYSTORE_CERTIFICATE_CHAIN],
            key=own[SSL_KEYSTORE_KEY],
            key_password=own[SSL_KEY_PASSWORD],
        ),
        trust=StoreSettings(
            type=own[SSL_TRUSTSTORE_TYPE],
            location=own[SSL_TRUSTSTORE_LOCATION],
            password=own[SSL_TRUSTSTORE_PASSWORD],
            certificates=own[SSL_TRUSTSTORE_CERTIFICATES],
        ),
        client_auth=own[SSL_CLIENT_AUTH],
        protocols=own[SSL_ENABLED_PROTOCOLS],
        cipher_suites=own[SSL_CIPHER_SUITES],
        mapping_rules=own[SSL_PRINCIPAL_MAPPING_RULES],
    )
