"""The stock clients that judge: all of them, always."""

from __future__ import annotations

from typing import Final

from tests.compat.aiokafka_client import Aiokafka
from tests.compat.confluent import Confluent
from tests.compat.kafka_python import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.row import Client

CLIENTS: Final[tuple[type[Client], ...]] = (Kcat, Confluent, KafkaPython, Aiokafka)
