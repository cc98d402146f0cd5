"""(shell) librdkafka without Python in its hot path: the library inside the confluent-kafka package, called by ctypes.

Only so is the client faster than the broker it measures. Its built-in mock broker (`test.mock.num.brokers`), in memory
and in C, is the yardstick of a paired run.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Mapping

import confluent_kafka

_PRODUCER = 0
_ERROR_BYTES = 512
_PARTITION_ANY = -1


class _Message(ctypes.Structure):
    """rd_kafka_message_t"""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def _load() -> ctypes.CDLL:
    packages = os.path.dirname(os.path.dirname(confluent_kafka.__file__))
    (path,) = glob.glob(os.path.join(packages, "confluent_kafka.libs", "librdkafka*.so*"))
    library = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    for name, result, *arguments in (
        ("rd_kafka_conf_new", pointer),
        (
            "rd_kafka_conf_set",
            ctypes.c_int,
            pointer,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ),
        ("rd_kafka_new", pointer, ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t),
        ("rd_kafka_topic_new", pointer, pointer, ctypes.c_char_p, pointer),
        ("rd_kafka_produce_batch", ctypes.c_int, pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_int),
        ("rd_kafka_poll", ctypes.c_int, pointer, ctypes.c_int),
        ("rd_kafka_flush", ctypes.c_int, pointer, ctypes.c_int),
        ("rd_kafka_outq_len", ctypes.c_int, pointer),
        ("rd_kafka_topic_destroy", None, pointer),
        ("rd_kafka_destroy", None, pointer),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class NativeProducer:
    """Sends the same value again and again, as fast as librdkafka can. Use as a context manager."""

    def __init__(self, topic: str, value: bytes, config: Mapping[str, str]) -> None:
        self._library = _load()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = self._library.rd_kafka_conf_new()
        for name, text in config.items():
            if self._library.rd_kafka_conf_set(conf, name.encode(), text.encode(), error, _ERROR_BYTES) != 0:
                raise ValueError(f"{name}={text}: {error.value.decode()}")
        self._handle = self._library.rd_kafka_new(_PRODUCER, conf, error, _ERROR_BYTES)
        if not self._handle:
            raise RuntimeError(error.value.decode())
        self._topic = self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = (_Message * 1000)()

    def __enter__(self) -> NativeProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)

    def send(self, count: int, *, timeout_ms: int = 120_000) -> None:
        """Send `count` values and wait until all are acknowledged. Raises RuntimeError where they are not."""
        address = ctypes.addressof(self._value)
        sent = 0
        while sent < count:
            batch = min(len(self._messages), count - sent)
            for message in self._messages[:batch]:
                message.payload, message.len, message.key, message.key_len = address, len(self._value), None, 0
            accepted = self._library.rd_kafka_produce_batch(self._topic, _PARTITION_ANY, 0, self._messages, batch)
            sent += accepted
            self._library.rd_kafka_poll(self._handle, 0 if accepted == batch else 5)
        if self._library.rd_kafka_flush(self._handle, timeout_ms) != 0:
            raise RuntimeError(f"{self._library.rd_kafka_outq_len(self._handle)} values were not acknowledged")
