"""The configuration in force: dynamic values from the metadata log above the static configuration of a node."""

from __future__ import annotations

from typing import Final

from raylog.config.table import with_dynamic_configs
from raylog.core.config import Configs
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.metadata.image import MetadataImage

ALL_BROKERS: Final = NO_BROKER_ID
"""In place of a broker id: the defaults that apply to brokers without a value of their own."""


def effective_configs(image: MetadataImage, static: Configs, broker_id: BrokerId) -> Configs:
    """A broker's configuration: its own dynamic values, then those of all brokers, then its static configuration."""
    cluster = image.broker_configs.get(ALL_BROKERS, {})
    return with_dynamic_configs(static, cluster=cluster, broker=image.broker_configs.get(broker_id, {}))
