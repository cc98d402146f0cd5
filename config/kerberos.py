"""SASL GSSAPI: the broker's keys for Kerberos, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.core.config import ConfigKey, Configs, ConfigType

SASL_KERBEROS_SERVICE_NAME: ConfigKey[str] = ConfigKey(
    "sasl.kerberos.service.name",
    ConfigType.STRING,
    "",
    "The service of the Kerberos principal of the broker, usually kafka. Clients must set it. If a broker sets it, the"
    " principal in sasl.jaas.config must have it.",
    per_listener=True,
    per_mechanism=True,
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES: ConfigKey[tuple[str, ...]] = ConfigKey(
    "sasl.kerberos.principal.to.local.rules",
    ConfigType.LIST,
    ("DEFAULT",),
    "Comma-separated list of rules that turn the Kerberos principal of a client into the name of a user; the first that"
    " applies decides. A rule is DEFAULT, for principals of the default realm, or"
    " `RULE:[components:format](regexp)s/pattern/replacement/g`, with /L or /U at the end for lower or upper case. A"
    " client to which no rule applies is refused.",
    per_listener=True,
)


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """GSSAPI."""

    service_name: str
    """Empty: that of the principal."""
    rules: tuple[str, ...]


def kerberos_settings(configs: Configs) -> KerberosSettings:
    return KerberosSettings(
        service_name=configs[SASL_KERBEROS_SERVICE_NAME],
        rules=configs[SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES],
    )
