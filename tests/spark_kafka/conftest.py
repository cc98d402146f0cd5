"""A Spark on two cores without Ray, with Spark's own Kafka source and sink, and a broker with and without logins."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.raydp_bridge.session import prepare_environment, spark_configs
from tests.compat.secure_clients import java_client
from tests.support.kafka_peer import ROOT
from tests.support.secure_cluster import SecureCluster, secure_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = {"log.segment.bytes": 350_000, "log.cleaner.backoff.ms": 100}


@pytest.fixture(scope="session")
def spark_kafka(runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "a process has one Spark session: run tests/spark_kafka alone"
    prepare_environment()
    class_path = subprocess.run([ROOT / "script" / "spark-kafka"], stdout=subprocess.PIPE, text=True, check=True).stdout
    settings = {
        "spark.driver.extraClassPath": class_path.strip(),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # compiles quickly: no test runs for long
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("raylog-tests")
    session = builder.config(map=dict(spark_configs(settings))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure"), CONFIG) as cluster:
        yield cluster


def options(secure: SecureCluster, protocol: str, **changed: Any) -> Mapping[str, Any]:
    """How Spark connects to the listener of this protocol; by SCRAM if it wants a login."""
    login = secure.login(protocol, "SCRAM-SHA-512" if protocol.startswith("SASL") else "", **changed)
    return {
        f"kafka.{name}": value for name, value in {"bootstrap.servers": login.servers, **java_client(login)}.items()
    }
