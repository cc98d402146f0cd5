"""A Kafka-compatible commit log that lives inside a Ray cluster.

    import raylog

    with raylog.start("my-log", data_dir="/data/raylog") as cluster:
        print(cluster.bootstrap_servers)  # for any Kafka client

Ray is imported when a cluster is started or connected to, not before.
"""

from raylog.actors.cluster import Cluster, connect, start
from raylog.core.errors import ConfigError, ErrorCode, KafkaError

__all__ = ["Cluster", "ConfigError", "ErrorCode", "KafkaError", "connect", "start"]
