"""The types of resources that have a configuration, with the numbers of DescribeConfigs, and what guards each."""

from __future__ import annotations

import re
from typing import Final

from raylog.security.acl import CLUSTER, Resource

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
BROKER_ID: Final = re.compile(r"[0-9]{1,10}")
"""The name of the resource of one broker."""


def guarded(resource_type: int, resource_name: str) -> Resource:
    """The resource whose DESCRIBE_CONFIGS or ALTER_CONFIGS a client needs."""
    if resource_type == TOPIC:
        return Resource.topic(resource_name)
    return Resource.group(resource_name) if resource_type == GROUP else CLUSTER
