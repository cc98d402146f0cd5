"""What a cluster was started with, and the configuration of each of its brokers that follows from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raylog.core.errors import ConfigError

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """The same for all nodes, also for those that are added later."""

    texts: Mapping[str, Any] = field(default_factory=dict)
    """Kafka's broker configuration."""
    port: int | None = None
    """Of broker 0; the others follow. 0 and None mean any."""

    def of_broker(self, broker_id: int, address: str = LOOPBACK) -> dict[str, Any]:
        """Raises ConfigError."""
        texts = dict(self.texts)
        for key in ("node.id", "broker.id"):
            if key in texts:
                raise ConfigError(f"{key}={texts[key]!r}: raylog numbers its brokers itself, from 0; leave the key out")
        if self.port is not None:
            if "listeners" in texts:
                raise ConfigError("port and config['listeners'] say the same thing: give one of them")
            if not 0 <= self.port <= PORT_MAX - broker_id:
                highest = f"{PORT_MAX - broker_id}, since broker {broker_id} listens on port + {broker_id}"
                raise ConfigError(f"port={self.port}: must be between 0 and {highest if broker_id else PORT_MAX}")
            texts["listeners"] = f"PLAINTEXT://{address}:{self.port + broker_id if self.port else 0}"
        return {"listeners": f"PLAINTEXT://{address}:0", **texts}

    def check_several(self) -> None:
        """Several brokers cannot have one port. Raises ConfigError."""
        for key in ("listeners", "advertised.listeners"):
            text = str(self.texts.get(key, ""))
            if re.search(r":0*[1-9]\d*\s*(,|$)", text):
                raise ConfigError(f"{key}={text!r}: several brokers cannot share a port; write port 0, or use `port`")
