"""(shell) The blocking share consumer, for one thread at a time.

with raylog.ShareConsumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
    consumer.subscribe("orders")
    for record in consumer:
        print(record.key, record.value, record.delivery_count)
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any, Self

from raylog.client.consumer.records import Deserializer
from raylog.client.errors import ClientClosedError
from raylog.client.faces import BlockingFace
from raylog.client.given_config import given_config
from raylog.client.given_values import checked_count, checked_seconds
from raylog.client.network_loop import NetworkLoop
from raylog.client.share.acquired import ShareRecord
from raylog.client.share.calls import CLOSE_SECONDS, ShareConsumerCalls
from raylog.client.share.core import results
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now


class ShareConsumer(BlockingFace, ShareConsumerCalls):
    """Takes records of topics as a member of a share group (KIP-932).

    Open from `__init__` to `close`; a context manager. Only `wakeup` may be called by another thread meanwhile.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: Any,
    ) -> None:
        """`config` has Kafka's keys of a share consumer; `settings` are the same keys with underscores for dots.

        Raises ConfigError.
        """
        super().__init__("share consumer")
        given = given_config(SHARE_CONSUMER_CONFIG, config, settings)
        self._configure(given, random.Random(), key_deserializer, value_deserializer)
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._thread.loop, lock=self._lock, after_event=self._after_event
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ShareRecord]:
        """Records without end; waits for each, and in the implicit mode accepts the one before."""
        while not self._core.closed:
            yield from self.poll(max_records=1)

    # --- records

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ShareRecord]:
        """Records for this member alone, at most max.poll.records; none after `timeout` seconds.

        In the implicit mode the records of the call before are accepted; in the explicit mode each must have been
        acknowledged. It must be called again within max.poll.interval.ms. Raises KafkaError: what has gone wrong since
        the last call, each once; WakeupError; what the acknowledgement callback raises, before records are taken.
        """
        count = checked_count(max_records, self._core.settings.poll_records)
        deadline = monotonic() + checked_seconds(timeout)
        with self._used(), self._returning():
            with self._changed:
                taken = self._polled(count, deadline)
            return self._deserialized(taken)

    def _polled(self, count: int, deadline: float) -> list[ShareRecord]:
        self._report()
        self._begin_poll()
        idle = False
        try:
            while True:
                self._report()  # before records are taken, which would be lost if the callback raised
                self._check_open()
                self._raise_wakeup()
                self._core.raise_error()
                idle = idle and not self._core.sessions.buffered
                if taken := self._core.take(count, now()):
                    return taken
                if not idle:  # every event runs the services, so that once is enough
                    idle = True
                    self._poke()
                if not self._wait_for_event(deadline):
                    return []
        finally:
            self._end_poll()

    # --- acknowledgements

    def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged, and wait until the leaders have stored it, or for `timeout` seconds.

        In the implicit mode all records of the last poll() are accepted. Returns the partitions of which something
        was sent, each with its error or None. After INVALID_RECORD_STATE an acquisition lock had timed out, and the
        records of the partition are delivered again. Raises KafkaError.
        """
        with self._used(), self._changed:
            self._check_open()
            sent = self._core.commit(now(), self._timeout_ms(timeout))
            self._wait_until(lambda: all(each.done for each in sent), self._timeout_ms(timeout) / 1000)
            self._report()
            return results(sent)

    def commit_async(self) -> None:
        """As `commit_sync`, and do not wait: see `set_acknowledgement_commit_callback`. Raises KafkaError."""
        with self._used(), self._changed:
            self._check_open()
            self._report()
            self._core.commit(now(), self._timeout_ms(None))
            self._poke()

    # --- the end

    def unsubscribe(self) -> None:
        """Get records no more, and leave the group. What is not acknowledged is released. Raises KafkaError."""
        with self._used(), self._changed:
            self._check_open()
            self._leave("the share consumer has unsubscribed", CLOSE_SECONDS)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Send what was acknowledged, release all other records, and leave the group. Can be called twice.

        Also in the implicit mode, the records of the last poll() are released unless they were committed. What the
        acknowledgement callback raises is raised once everything is closed.
        """
        checked_seconds(timeout)
        with self._used():
            if self._core.closed:
                return
            try:
                with self._changed:
                    try:
                        self._leave("the share consumer was closed", timeout)
                    finally:
                        self._core.closed = True
                        self._core.abandon(ClientClosedError("the share consumer was closed"))
                        self._report()
            finally:
                self._close_connections()

    def _leave(self, reason: str, timeout: float) -> None:
        deadline = monotonic() + timeout
        self._core.end_sessions(now(), int(1000 * timeout))
        self._wait_until(lambda: self._core.sessions.closed, timeout)
        left_seconds = max(0.0, deadline - monotonic())
        request = self._core.unsubscribe(reason, now(), int(1000 * left_seconds))
        self._wait_until(lambda: request is None or request.done, left_seconds)

    def _report(self) -> None:
        """Call the program's callback, without the lock: it may use the consumer."""
        callback = self._on_acknowledged
        while callback is not None and (each := self._next_report()) is not None:
            self._unlocked(partial(callback, each.leader.tp, each.offsets, each.error))
