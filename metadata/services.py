"""What the handlers that brokers and controllers share may use of their node, and nothing else of it."""

from __future__ import annotations

from typing import Protocol

from raylog.core.config import Configs
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.security.authorization import Authorization
from raylog.transport.node import NodeIdentity


class ImageServices(Protocol):
    """Implemented by `Broker` and `Controller`."""

    identity: NodeIdentity
    authorization: Authorization

    @property
    def image(self) -> MetadataImage: ...

    @property
    def configs_in_force(self) -> Configs:
        """The configuration of this node, with the dynamic values in the metadata."""

    def topic_configs(self, topic: TopicImage) -> Configs:
        """The configuration of a topic, with the defaults of this node."""
