"""(shell) Writes the offset syncs of a flow's copied records, behind the copying and never in its way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.producer.async_producer import AsyncProducer
from raylog.config.producer import TRANSACTIONAL_ID
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.cluster_ends import ClusterEnd
from raylog.mirror.config import FlowConfig
from raylog.mirror.copied import Copied
from raylog.mirror.formats import OffsetSync
from raylog.mirror.named_errors import name_cluster
from raylog.mirror.offset_translation import OffsetSyncEmitter, latest_syncs
from raylog.mirror.waits import until_set

log = logging.getLogger("raylog.mirror")
WRITE_SECONDS: Final = 0.5
"""How often syncs are written. In this time a partition that was copied to its end has a sync of that end."""
RETRY_SECONDS: Final = 2.0
UNSENT_MAX: Final = 20_000
"""While the topic cannot be written, more than these are thinned out to the last one of each partition."""


class OffsetSyncWriter:
    """Belongs to the loop of `run`. The topic is created by the control of the flow; until then syncs wait."""

    def __init__(self, flow: FlowConfig) -> None:
        self._flow = flow
        self._end = flow.source if flow.offset_syncs_in_source else flow.target
        self._emitter = OffsetSyncEmitter(flow.offset_lag_max)
        self._unsent: list[OffsetSync] = []
        self._stopping = asyncio.Event()
        self.error: KafkaError | None = None
        """Why the last syncs were not written; they are kept, and tried again."""

    def copied(self, runs: Iterable[Copied]) -> None:
        """These are committed in the target: see `OffsetSyncEmitter`."""
        for run in runs:
            self._unsent += self._emitter.observe(run.tp, run.source_offset, run.target_offset, run.count)
        if len(self._unsent) > UNSENT_MAX:
            self._unsent = latest_syncs(self._unsent)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Another worker copies these from now on, or the same one anew. What they have reached is still written."""
        self._unsent += self._emitter.pending()
        for tp in partitions:
            self._emitter.forget(tp)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, admin: AsyncAdminClient) -> None:
        """Until `stop`, when all is written or was tried. `admin` is a client of the cluster that has the topic."""
        while True:
            try:
                await self._keep_writing(admin)
                return
            except KafkaError as error:  # the producer cannot be made
                self._failed(error)
            await until_set(self._stopping, RETRY_SECONDS)
            if self._stopping.is_set():
                return

    async def _keep_writing(self, admin: AsyncAdminClient) -> None:
        """Raises KafkaError."""
        topic_is_known = False
        producer = AsyncProducer(_producer_config(self._flow, self._end))
        try:
            is_last = False
            while not is_last:
                await until_set(self._stopping, WRITE_SECONDS if self.error is None else RETRY_SECONDS)
                is_last = self._stopping.is_set()
                self._unsent += self._emitter.pending()
                if not self._unsent:
                    continue
                try:
                    if not topic_is_known:  # a producer would have the brokers create it, and not compacted
                        await admin.describe_topics([self._flow.offset_syncs_topic])
                        topic_is_known = True
                    syncs, self._unsent = self._unsent, []
                    try:
                        await self._write(producer, syncs)
                    except BaseException:
                        self._unsent = syncs + self._unsent
                        raise
                except KafkaError as error:
                    topic_is_known = False
                    self._failed(error)
                else:
                    self.error = None
        finally:
            await producer.close(0)  # what is not acknowledged is in `_unsent`

    def _failed(self, error: KafkaError) -> None:
        name_cluster(error, self._end.alias)
        self.error = error
        log.warning("offset syncs not written", extra={"flow": self._flow.name, "reason": str(error)})

    async def _write(self, producer: AsyncProducer, syncs: Sequence[OffsetSync]) -> None:
        """Raises KafkaError."""
        sent = []
        for sync in syncs:
            key, value = sync.encode()
            sent.append(await producer.send(self._flow.offset_syncs_topic, value, key, partition=0))
        await producer.flush()
        for delivery in sent:
            delivery.result()


def _producer_config(flow: FlowConfig, end: ClusterEnd) -> dict[str, Any]:
    given = {name: value for name, value in end.producer.items() if name != TRANSACTIONAL_ID.name}
    return {"client.id": f"raylog-mirror-{flow.name}-offset-syncs", **given, "enable.idempotence": True, "acks": "all"}
