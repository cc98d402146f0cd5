"""Rules between keys: each value is valid by itself, but a broker with all of them could not work."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from raylog.config.authentication import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
from raylog.config.compaction import LOG_CLEANER_MAX_COMPACTION_LAG_MS, LOG_CLEANER_MIN_COMPACTION_LAG_MS
from raylog.config.consumer_groups import (
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
from raylog.config.groups import GROUP_MAX_SESSION_TIMEOUT_MS, GROUP_MIN_SESSION_TIMEOUT_MS
from raylog.config.membership import BROKER_HEARTBEAT_INTERVAL_MS, BROKER_SESSION_TIMEOUT_MS
from raylog.config.network import CONNECTIONS_MAX_IDLE_MS, listener_names
from raylog.config.replication import REPLICA_FETCH_WAIT_MAX_MS, REPLICA_LAG_TIME_MAX_MS
from raylog.config.share_groups import (
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
)
from raylog.config.streams_groups import (
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    GROUP_STREAMS_SESSION_TIMEOUT_MS,
)
from raylog.core.config import ConfigKey, Configs, ConfigSource, overriding_listener


@dataclass(frozen=True, slots=True)
class AtMost:
    """The value of one key is at most that of another, or half of it, or less than it."""

    lower: ConfigKey[int]
    upper: ConfigKey[int]
    half: bool = False
    strict: bool = False
    """Less, unless the other value is negative, which stands for no limit."""

    @property
    def relation(self) -> str:
        """Of the first key to the second."""
        return "less than " if self.strict else f"at most {'half of ' if self.half else ''}"

    def check(self, configs: Configs) -> None:
        """Raises ConfigError, which names the key that is set; the other may have its default."""
        (low, source), high = configs.lookup(self.lower), configs[self.upper]
        if (low < high or high < 0) if self.strict else (2 * low if self.half else low) <= high:
            return
        if source is ConfigSource.DEFAULT_CONFIG:
            relation = "greater than " if self.strict else f"at least {'twice ' if self.half else ''}"
            raise self.upper.refused(str(high), f"must be {relation}{self.lower.name}, which is {low}")
        raise self.lower.refused(str(low), f"must be {self.relation}{self.upper.name}, which is {high}")


RULES: Final = (
    # else one late heartbeat fences a broker
    AtMost(BROKER_HEARTBEAT_INTERVAL_MS, BROKER_SESSION_TIMEOUT_MS, half=True),
    # else followers leave the in-sync replicas whenever there is nothing to fetch
    AtMost(REPLICA_FETCH_WAIT_MAX_MS, REPLICA_LAG_TIME_MAX_MS),
    # else clients do not get the response to a failed authentication
    AtMost(CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, CONNECTIONS_MAX_IDLE_MS, strict=True),
    # else no topic can be created, as for topics' own values
    AtMost(LOG_CLEANER_MIN_COMPACTION_LAG_MS, LOG_CLEANER_MAX_COMPACTION_LAG_MS),
    # else no member can join a group
    AtMost(GROUP_MIN_SESSION_TIMEOUT_MS, GROUP_MAX_SESSION_TIMEOUT_MS),
    AtMost(GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    AtMost(GROUP_CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    AtMost(GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_SESSION_TIMEOUT_MS),
    AtMost(GROUP_SHARE_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    AtMost(GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS, GROUP_SHARE_RECORD_LOCK_DURATION_MS),
    AtMost(GROUP_SHARE_RECORD_LOCK_DURATION_MS, GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS),
    AtMost(GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS, GROUP_STREAMS_SESSION_TIMEOUT_MS),
    AtMost(GROUP_STREAMS_SESSION_TIMEOUT_MS, GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS),
    AtMost(GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS),
    AtMost(GROUP_STREAMS_NUM_STANDBY_REPLICAS, GROUP_STREAMS_MAX_STANDBY_REPLICAS),
    # else the sessions of members expire between two heartbeats
    AtMost(GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    AtMost(GROUP_SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_SESSION_TIMEOUT_MS),
    AtMost(GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_SESSION_TIMEOUT_MS),
)


def check_together(configs: Configs) -> None:
    """Check a broker's configuration as a whole. Raises ConfigError."""
    check_rules(configs, configs.schema.keys)
    _check_overrides(configs)


def check_rules(configs: Configs, changed: Collection[str]) -> None:
    """Check the rules that concern a key in `changed`. Raises ConfigError."""
    for rule in RULES:
        if rule.lower.name in changed or rule.upper.name in changed:
            rule.check(configs)


def _check_overrides(configs: Configs) -> None:
    """`listener.name.<listener>.<key>` must name a listener that the broker opens. Raises ConfigError."""
    names = listener_names(configs)
    for name, key in configs.keys().items():
        listener = overriding_listener(name).upper()
        if listener and listener not in names:
            rule = f"listeners has no {listener}, only {', '.join(sorted(names))}"
            raise key.refused(key.format(configs[key]) or "", rule)
