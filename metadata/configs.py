"""The configuration in force: what a node was started with, under what the metadata log says."""

from __future__ import annotations

from typing import Final

from raylog.config.broker import with_dynamic_configs
from raylog.core.config import Configs
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.metadata.image import MetadataImage

ALL_BROKERS: Final = NO_BROKER_ID
"""In place of a broker's id: what every broker takes that has nothing of its own."""


def effective_configs(image: MetadataImage, static: Configs, broker_id: BrokerId) -> Configs:
    """A broker's configuration: what it was started with, under what has been set since."""
    cluster = image.broker_configs.get(ALL_BROKERS, {})
    return with_dynamic_configs(static, cluster=cluster, broker=image.broker_configs.get(broker_id, {}))
