"""An admin client's keys, as in Kafka's Java client, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from raylog.config.client import BOOTSTRAP_CONTROLLERS, CONNECTION_KEYS
from raylog.config.client_network import NETWORK_KEYS, NetworkSettings, network_settings
from raylog.config.consumer import DEFAULT_API_TIMEOUT_MS
from raylog.core.config import Configs, ConfigSchema

ADMIN_KEYS: Final = (BOOTSTRAP_CONTROLLERS, DEFAULT_API_TIMEOUT_MS)
ADMIN_CONFIG: Final = ConfigSchema((*CONNECTION_KEYS, *NETWORK_KEYS, *ADMIN_KEYS))


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Times in milliseconds."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS.default
    of_controllers: bool = False
    """Whether its nodes are controllers, not brokers."""


def admin_settings(configs: Configs) -> AdminSettings:
    of_controllers = bool(configs[BOOTSTRAP_CONTROLLERS])
    return AdminSettings(network_settings(configs), configs[DEFAULT_API_TIMEOUT_MS], of_controllers)
