"""Client quotas: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType, between

WINDOWS_MAX: Final = 1000
"""Of one rate: each takes memory for every client that is measured."""
WINDOW_SECONDS_MAX: Final = 86_400

QUOTA_WINDOW_NUM: ConfigKey[int] = ConfigKey(
    "quota.window.num",
    ConfigType.INT,
    11,
    "Number of samples from which the rates of client quotas are computed. A client may use its quota unevenly within"
    " the time of all samples.",
    between(1, WINDOWS_MAX),
)
QUOTA_WINDOW_SIZE_SECONDS: ConfigKey[int] = ConfigKey(
    "quota.window.size.seconds",
    ConfigType.INT,
    1,
    "Length of each sample of a client quota, in seconds.",
    between(1, WINDOW_SECONDS_MAX),
)
CONTROLLER_QUOTA_WINDOW_NUM: ConfigKey[int] = ConfigKey(
    "controller.quota.window.num",
    ConfigType.INT,
    11,
    "Number of samples of the quota controller_mutation_rate. A client may change as many partitions at once as its"
    " quota permits in the time of all samples.",
    between(1, WINDOWS_MAX),
    cluster_wide=True,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: ConfigKey[int] = ConfigKey(
    "controller.quota.window.size.seconds",
    ConfigType.INT,
    1,
    "Length of each sample of the quota controller_mutation_rate, in seconds.",
    between(1, WINDOW_SECONDS_MAX),
    cluster_wide=True,
)


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """How the rates of client quotas are measured."""

    window_count: int
    window_ms: int


def quota_settings(configs: Configs) -> QuotaSettings:
    """For bytes, request time and connections."""
    return QuotaSettings(window_count=configs[QUOTA_WINDOW_NUM], window_ms=configs[QUOTA_WINDOW_SIZE_SECONDS] * 1000)


def controller_quota_settings(configs: Configs) -> QuotaSettings:
    """For changes of partitions."""
    return QuotaSettings(
        window_count=configs[CONTROLLER_QUOTA_WINDOW_NUM],
        window_ms=configs[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
    )
