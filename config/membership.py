"""A broker as a member of its cluster: its keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least

NODE_ID: ConfigKey[int] = ConfigKey(
    "node.id",
    ConfigType.INT,
    0,
    "Id of the broker. When a cluster is started it is the id of the first broker, and the others have the ids that"
    " follow. Ids from 1000 are those of controllers. It cannot be changed later.",
    at_least(0),
)
BROKER_RACK: ConfigKey[str | None] = ConfigKey(
    "broker.rack",
    ConfigType.STRING,
    None,
    "Rack of the broker. Replicas of a partition are spread over racks, and consumers can read from a replica on their"
    " own. raylog sets it to the name of the broker's host if it is not configured.",
)
BROKER_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "broker.heartbeat.interval.ms",
    ConfigType.INT,
    2000,
    "Time between two heartbeats of a broker to the controller, in milliseconds.",
    at_least(10),
)
BROKER_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "broker.session.timeout.ms",
    ConfigType.INT,
    9000,
    "The controller fences a broker that sends no heartbeat for this long, in milliseconds, and elects new leaders for"
    " its partitions. A broker whose connection to the controller is lost is fenced without this delay.",
    at_least(100),
    cluster_wide=True,
)
CONTROLLED_SHUTDOWN_ENABLE: ConfigKey[bool] = ConfigKey(
    "controlled.shutdown.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a broker that is stopped first hands over the partitions that it leads. It waits for the controller for up"
    " to 20 seconds, and for up to 3 seconds if no controller responds.",
)


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    rack: str | None
    heartbeat_interval_ms: int
    controlled_shutdown: bool


def membership_settings(configs: Configs) -> MembershipSettings:
    return MembershipSettings(
        rack=configs[BROKER_RACK],
        heartbeat_interval_ms=configs[BROKER_HEARTBEAT_INTERVAL_MS],
        controlled_shutdown=configs[CONTROLLED_SHUTDOWN_ENABLE],
    )
