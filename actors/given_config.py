"""The configuration that a cluster was started with, and that of each broker derived from it. Pure."""

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
    """The same for all nodes, including those that are added later."""

    texts: Mapping[str, Any] = field(default_factory=dict)
    """Kafka's broker configuration; passwords are `Password` objects."""
    port: int | None = None
    """The port of broker 0; broker i listens on port + i. 0 and None stand for any free port."""

    def of_broker(self, broker_id: int, address: str = LOOPBACK) -> dict[str, Any]:
        """Raises ConfigError."""
        texts = dict(self.texts)
        for key in ("node.id", "broker.id"):
            if key in texts:
                raise ConfigError(f"{key}={texts[key]!r}: raylog assigns broker ids itself, from 0; remove the key")
        if self.port is not None:
            if "listeners" in texts:
                raise ConfigError("port and config['listeners'] exclude each other: set only one of them")
            if not 0 <= self.port <= PORT_MAX - broker_id:
                highest = f"{PORT_MAX - broker_id}, since broker {broker_id} listens on port + {broker_id}"
                raise ConfigError(f"port={self.port}: must be between 0 and {highest if broker_id else PORT_MAX}")
            texts["listeners"] = f"PLAINTEXT://{address}:{self.port + broker_id if self.port else 0}"
        return {"listeners": f"PLAINTEXT://{address}:0", **texts}

    def check_several(self) -> None:
        """Raises ConfigError if several brokers would listen on the same port."""
        for key in ("listeners", "advertised.listeners"):
            text = str(self.texts.get(key, ""))
            if re.search(r":0*[1-9][0-9]*\s*(,|$)", text):
                rule = "several brokers cannot share a port; use port 0, or the argument `port`"
                raise ConfigError(f"{key}={text!r}: {rule}")
