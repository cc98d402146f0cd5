"""Stock clients that log in: each creates a topic, writes records and reads them in a group."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as KafkaPythonTopic

ANSWER_SECONDS: Final = 30.0
BOOTSTRAP_MS: Final = 1000
"""How long kafka-python tries again after a refused login."""
VALUES: Final = [b"one", b"two", b"three"]


@dataclass(frozen=True, slots=True)
class Login:
    """How a client connects. What is empty is not given to it."""

    servers: str
    protocol: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    trusted: Path | None = None
    """The certificates of the authorities that it trusts."""
    certificate: Path | None = None
    key: Path | None = None


class SecureClient(Protocol):
    """One client library."""

    name: str

    def use(self, login: Login, topic: str) -> list[bytes]:
        """Create the topic, write VALUES to it, and return what a group reads. Raises whatever the client raises."""


def librdkafka(login: Login) -> dict[str, Any]:
    given = {
        "bootstrap.servers": login.servers,
        "security.protocol": login.protocol,
        "sasl.mechanisms": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password,
        "ssl.ca.location": login.trusted,
        "ssl.certificate.location": login.certificate,
        "ssl.key.location": login.key,
    }
    return {name: str(value) for name, value in given.items() if value}


def java_client(login: Login) -> dict[str, str]:
    """The properties of Kafka's own client, without those of a certificate."""
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    password = login.password.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'org.apache.kafka.common.security.{module} required username="{login.user}" password="{password}";'
    given = {
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": jaas if login.mechanism else "",
        "ssl.truststore.type": "PEM" if login.trusted else "",
        "ssl.truststore.location": str(login.trusted or ""),
    }
    return {name: value for name, value in given.items() if value}


class SecureConfluent:
    name = "confluent-kafka"

    def use(self, login: Login, topic: str) -> list[bytes]:
        config = librdkafka(login)
        refused: list[str] = []

        def on_error(error: Any) -> None:
            refused.append(error.str())

        config["error_cb"] = on_error
        config["reconnect.backoff.max.ms"] = 200
        admin = AdminClient(config)
        created = admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=ANSWER_SECONDS)[topic]
        for _ in range(int(ANSWER_SECONDS * 10)):
            admin.poll(0.1)
            if created.done() or any("uthenticat" in text or "brokers are down" in text for text in refused):
                break
        if not created.done():
            raise KafkaException(refused)
        created.result()
        producer = Producer(config)
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(ANSWER_SECONDS) == 0
        consumer = Consumer({**config, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            messages = consumer.consume(len(VALUES), timeout=ANSWER_SECONDS)
            return [message.value() or b"" for message in messages]
        finally:
            consumer.close()


class SecureKafkaPython:
    name = "kafka-python"

    def use(self, login: Login, topic: str) -> list[bytes]:
        config = _python_settings(login, bootstrap_servers=login.servers, bootstrap_timeout_ms=BOOTSTRAP_MS)
        if login.trusted:
            config |= {"ssl_cafile": str(login.trusted), "ssl_check_hostname": True}
        if login.certificate:
            config |= {"ssl_certfile": str(login.certificate), "ssl_keyfile": str(login.key)}
        admin = KafkaAdminClient.__new__(KafkaAdminClient)
        admin._closed = False  # if the login fails, __init__ raises and would leave its thread and sockets open
        try:
            admin.__init__(**config)
            admin.create_topics([KafkaPythonTopic(topic, 1, 1)])
        finally:
            admin.close()
        producer = KafkaProducer(**config)
        for sent in [producer.send(topic, value) for value in VALUES]:
            sent.get(timeout=ANSWER_SECONDS)
        producer.close()
        consumer = KafkaConsumer(
            topic,
            group_id=f"of-{topic}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(ANSWER_SECONDS * 1000),
            **config,
        )
        try:
            return [record.value for _, record in zip(VALUES, consumer, strict=False)]
        finally:
            consumer.close()


class SecureAiokafka:
    name = "aiokafka"

    def use(self, login: Login, topic: str) -> list[bytes]:
        return asyncio.run(self._use(login, topic))

    async def _use(self, login: Login, topic: str) -> list[bytes]:
        config = _python_settings(login, bootstrap_servers=login.servers)
        if login.trusted:
            context = ssl.create_default_context(cafile=str(login.trusted))
            if login.certificate:
                context.load_cert_chain(login.certificate, login.key)
            config["ssl_context"] = context
        admin = AIOKafkaAdminClient(**config)
        try:
            await admin.start()
            await admin.create_topics([AiokafkaTopic(topic, 1, 1)])
        finally:
            await admin.close()
        producer = AIOKafkaProducer(**config)
        await producer.start()
        try:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, group_id=f"of-{topic}", auto_offset_reset="earliest", **config)
        await consumer.start()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return [(await consumer.getone()).value for _ in VALUES]
        finally:
            await consumer.stop()


class SecureKcat:
    """It does not create topics: the broker does."""

    name = "kcat"

    def use(self, login: Login, topic: str) -> list[bytes]:
        self._run(login, ["-P", "-t", topic], typed=b"\n".join(VALUES))
        return self._run(
            login, ["-G", f"of-{topic}", "-c", str(len(VALUES)), "-X", "auto.offset.reset=earliest", topic]
        ).splitlines()

    def _run(self, login: Login, arguments: list[str], *, typed: bytes = b"") -> bytes:
        program = shutil.which("kcat")
        assert program is not None, "kcat is not on PATH (script/setup --kcat installs it)"
        settings = [part for name, value in librdkafka(login).items() for part in ("-X", f"{name}={value}")]
        ran = subprocess.run(
            [program, *settings, "-X", "message.timeout.ms=5000", *arguments],
            input=typed,
            capture_output=True,
            timeout=4 * ANSWER_SECONDS,
            check=False,
        )
        if ran.returncode:
            raise OSError(ran.stderr.decode())
        return ran.stdout


def _python_settings(login: Login, **settings: Any) -> dict[str, Any]:
    """What kafka-python and aiokafka have in common."""
    given: Mapping[str, Any] = {
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }
    return {**settings, **{name: value for name, value in given.items() if value}}


SECURE_CLIENTS: Final[tuple[SecureClient, ...]] = (
    SecureConfluent(),
    SecureKafkaPython(),
    SecureAiokafka(),
    SecureKcat(),
)
