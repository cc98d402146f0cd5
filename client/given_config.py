"""(shell) The configuration of a client as a program gives it: Kafka's keys in a mapping, or as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raylog.client.bootstrap import resolve
from raylog.client.client_config import Dialer, checked_properties
from raylog.client.given_values import checked_keys
from raylog.config.client import BOOTSTRAP_CONTROLLERS, BOOTSTRAP_SERVERS, client_settings
from raylog.core.config import Configs, ConfigSchema, ConfigSource, Layer
from raylog.core.errors import ConfigError
from raylog.core.password import Password


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """Validated."""

    servers: str
    configs: Configs
    dialer: Dialer


def given_config(schema: ConfigSchema, config: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> GivenConfig:
    """`arguments` are keys with underscores in place of dots, and go before those in `config`.

    Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond.
    """
    given = {
        **checked_keys("the configuration", config),
        **{name.replace("_", "."): value for name, value in arguments.items()},
    }
    texts = checked_properties({name: _text(value) for name, value in given.items() if value is not None})
    plain = {name: value.reveal() if isinstance(value, Password) else value for name, value in texts.items()}
    configs = Configs(schema, [Layer(ConfigSource.STATIC_BROKER_CONFIG, schema.parse(plain))])
    if controllers := plain.get(BOOTSTRAP_CONTROLLERS.name):
        if configs[BOOTSTRAP_SERVERS]:
            raise ConfigError("bootstrap.controllers: cannot be set beside bootstrap.servers")
        return GivenConfig(controllers, configs, Dialer(client_settings(texts)))
    if not configs[BOOTSTRAP_SERVERS]:
        raise ConfigError("bootstrap.servers: must be set")
    servers, door = resolve(configs[BOOTSTRAP_SERVERS])
    return GivenConfig(servers, configs, Dialer(client_settings(texts), door))


def _text(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value
