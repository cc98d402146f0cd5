"""Authentication by SASL: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from raylog.config.kerberos import KerberosSettings, kerberos_settings
from raylog.config.oauthbearer import SIGNED_TOKENS, UNSECURED_TOKENS, TokenSettings, token_settings
from raylog.core.config import INT_MAX, LONG_MAX, ConfigKey, Configs, ConfigType, between
from raylog.core.password import Password

_LOCAL_ENTRY: Final = re.compile(r"[^:]+:[^:]{1,200}")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""Those that raylog supports."""
SASL_ENABLED_MECHANISMS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "sasl.enabled.mechanisms",
    ConfigType.LIST,
    ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    f"The SASL mechanisms of a listener with security protocol SASL_PLAINTEXT or SASL_SSL: {', '.join(MECHANISMS)}."
    " Kafka's default is GSSAPI.",
    lambda names: (
        None if names and set(names) <= set(MECHANISMS) else f"must be one or more of {', '.join(MECHANISMS)}"
    ),
    per_listener=True,
)
SASL_JAAS_CONFIG: ConfigKey[Password | None] = ConfigKey(
    "sasl.jaas.config",
    ConfigType.PASSWORD,
    None,
    "The login module of one SASL mechanism of one listener, as a JAAS configuration line. For PLAIN it contains the"
    ' users: org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="password" user_bob="other";'
    " is the line for two of them. For GSSAPI it contains the principal of the broker and its keytab:"
    ' com.sun.security.auth.module.Krb5LoginModule required keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
    " is an example. For OAUTHBEARER with unsecured tokens it contains the options of the validator.",
    per_listener=True,
    dynamic_per_listener=True,
    per_mechanism=True,
    prefixed_only=True,
)
SASL_SERVER_CALLBACK_HANDLER_CLASS: ConfigKey[str] = ConfigKey(
    "sasl.server.callback.handler.class",
    ConfigType.STRING,
    "",
    "For PLAIN: a Python function, as module:name, that checks passwords in place of the users in sasl.jaas.config. It"
    " is called with user name and password, in a thread, and must return True to accept them. For OAUTHBEARER: one of"
    f" two classes of Kafka's: {SIGNED_TOKENS[0]}, the default, accepts signed tokens, and"
    f" {UNSECURED_TOKENS} accepts tokens without a signature, which is for tests only.",
    lambda name: (
        None
        if not name or name.count(":") == 1 or name in (*SIGNED_TOKENS, UNSECURED_TOKENS)
        else "must be module:name, or a class of Kafka's for OAUTHBEARER"
    ),
    per_listener=True,
    per_mechanism=True,
    prefixed_only=True,
)
DEFAULT_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
PRINCIPAL_BUILDERS: Final = "raylog.principal_builders"
"""The group of entry points in which packages offer principal builders."""
PRINCIPAL_BUILDER_CLASS: ConfigKey[str] = ConfigKey(
    "principal.builder.class",
    ConfigType.STRING,
    DEFAULT_PRINCIPAL_BUILDER,
    "A Python function that maps what a client has authenticated with to its principal: the name of an entry point in"
    f" the group {PRINCIPAL_BUILDERS}, or module:name. It is called in a thread with an AuthenticationContext of"
    " raylog.security.principal_builder, and must return the principal as Type:name. A client for which it raises an"
    " error is refused. The default is Kafka's: the user of SASL, the certificate's distinguished name after"
    " ssl.principal.mapping.rules, or User:ANONYMOUS.",
    lambda name: (
        None
        if name.count(":") <= 1 and name.strip(":") == name != ""
        else "must be module:name or the name of an entry point"
    ),
    per_listener=True,
)
SASL_SERVER_MAX_RECEIVE_SIZE: ConfigKey[int] = ConfigKey(
    "sasl.server.max.receive.size",
    ConfigType.INT,
    524_288,
    "Largest request that the broker accepts on a connection before it is authenticated by SASL, in bytes. The broker"
    " closes a connection that sends a larger one.",
    between(1024, INT_MAX),
)
CONNECTIONS_MAX_REAUTH_MS: ConfigKey[int] = ConfigKey(
    "connections.max.reauth.ms",
    ConfigType.LONG,
    0,
    "A connection authenticated by SASL is closed unless the client authenticates again within this time, in"
    " milliseconds (KIP-368). 0 sets no limit but the end of the client's credential.",
    between(0, LONG_MAX),
    per_listener=True,
    per_mechanism=True,
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: ConfigKey[int] = ConfigKey(
    "connection.failed.authentication.delay.ms",
    ConfigType.INT,
    100,
    "How long the broker waits before it reports a failed authentication and closes the connection, in milliseconds."
    " Must be less than connections.max.idle.ms, unless that is negative.",
    between(0, INT_MAX),
)
LOCAL_PRINCIPAL_MAPPING: ConfigKey[tuple[str, ...]] = ConfigKey(
    "local.principal.mapping",
    ConfigType.LIST,
    (),
    "Whom processes stand for that connect to the broker by a Unix socket or read its files: comma-separated entries"
    " user:name, of which the user is one of the operating system, by name or number, or * for all. Without an entry"
    " such a process is User:ANONYMOUS, and logs in if the first listener requires it. Kafka has no such key.",
    lambda entries: (
        None
        if all(map(_LOCAL_ENTRY.fullmatch, entries))
        else "must be user:name,user:name with names of up to 200 characters"
    ),
)


@dataclass(frozen=True, slots=True)
class SaslMechanismSettings:
    """One mechanism of one listener."""

    name: str
    jaas: Password | None
    """A JAAS configuration line."""
    callback: str
    """`module:name` of a function, or the name of a class of Kafka's; empty without one."""
    session_ms_max: int
    tokens: TokenSettings
    kerberos: KerberosSettings

    @property
    def by_signed_tokens(self) -> bool:
        """Whether clients prove their identity by signed tokens, for which there is no JAAS configuration."""
        return self.name == "OAUTHBEARER" and self.callback != UNSECURED_TOKENS


def principal_builder(configs: Configs, listener: str) -> str | None:
    """`module:name` or the name of an entry point; None for Kafka's default."""
    name = configs.for_listener(listener)[PRINCIPAL_BUILDER_CLASS]
    return None if name == DEFAULT_PRINCIPAL_BUILDER else name


def sasl_mechanisms(configs: Configs, listener: str) -> list[SaslMechanismSettings]:
    """The mechanisms that a listener offers."""
    found = []
    enabled = configs.for_listener(listener)[SASL_ENABLED_MECHANISMS]
    for name in dict.fromkeys(enabled):
        own = configs.for_listener(listener, name)
        found.append(
            SaslMechanismSettings(
                name=name,
                jaas=own[SASL_JAAS_CONFIG],
                callback=own[SASL_SERVER_CALLBACK_HANDLER_CLASS],
                session_ms_max=own[CONNECTIONS_MAX_REAUTH_MS],
                tokens=token_settings(own),
                kerberos=kerberos_settings(own),
            )
        )
    return found
