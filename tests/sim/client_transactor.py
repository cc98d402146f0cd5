"""A program that writes transactions with raylog's own producer: it commits, aborts, and is fenced by others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raylog.client.errors import AbortableError, FencedError
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import ProducerRecord, RecordMetadata
from raylog.client.producer.transactions import Operation
from raylog.config.producer import ProducerSettings
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.sim.broker_host import PORT, BrokerHost
from tests.sim.client_driver import ClientDriver
from tests.sim.transfer_ledger import Transfer, TransferLedger
from tests.sim.world import World

AGAIN_MS_MAX = 2000
"""How long a fenced producer waits: two with the same id would otherwise fence each other all the time."""
PAUSE_MS_MAX = 100
FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class ClientTransactor:
    """Runs one transaction after another until `ends`, and then until one more is committed."""

    def __init__(
        self,
        world: World,
        hosts: list[BrokerHost],
        ledger: TransferLedger,
        name: str,
        *,
        new_settings: Callable[[], ProducerSettings],
    ) -> None:
        self.world = world
        self.name = name
        self.ends = False
        self.finished = False
        self.committed = 0
        self._hosts = hosts
        self._ledger = ledger
        self._new_settings = new_settings
        self._drivers: list[ClientDriver] = []
        self._operation: Operation | None = None
        self._then: Callable[[], None] = lambda: None
        self._acknowledged = 0
        self._numbers = 0
        self._left = 0
        self._transfer: Transfer
        self.core: ProducerCore
        self.driver: ClientDriver
        self._renew()

    def break_connection(self) -> None:
        self.driver.break_connection()

    # --- a producer, and another one once it is fenced

    def _renew(self) -> None:
        """The producer before is not closed: it may still do whatever it had in hand."""
        servers = ",".join(f"{host.name}:{PORT}" for host in self._hosts)
        self.core = ProducerCore(servers, self._new_settings(), self.world.rng)
        self.driver = ClientDriver(self.world, self._hosts, self.core.network)
        self.driver.on_event = partial(self._after_event, self.core)
        self._start(lambda: self.core.transactions.init(), self._begin)

    def _start(self, call: Callable[[], Operation], then: Callable[[], None]) -> None:
        """Call the producer, and go on when the operation has ended well."""
        try:
            self._operation, self._then = call(), then
        except KafkaError as error:
            self._met(error)
        else:
            self._run_soon()

    def _run_soon(self) -> None:
        self.world.after(1, partial(self.driver.event, self.core.network.run))

    def _after_event(self, core: ProducerCore) -> None:
        completed, core.sender.completed = core.sender.completed, []
        for batch in completed:
            for index, timestamp_ms, on_delivery in batch.callbacks:
                on_delivery(batch.error, None if batch.error else batch.metadata(index, timestamp_ms))
        operation = self._operation
        if core is self.core and operation is not None and operation.done:
            self._operation = None
            if operation.error is None:
                self.world.after(1, self._then)
            else:
                self.world.after(1, partial(self._met, operation.error))

    def _met(self, error: KafkaError) -> None:
        self.world.marks[f"client's transaction met {error.code.name}"] += 1
        if isinstance(error, AbortableError):
            self._transfer.commit_asked = False  # it claims that nothing is committed
            self._start(self.core.transactions.abort, self._aborted)
        else:
            assert isinstance(error, FencedError), error
            assert error.code in FATAL, error
            self.world.after(self.world.rng.randint(1, AGAIN_MS_MAX), self._renew)

    # --- one transaction

    def _begin(self) -> None:
        self.core.transactions.begin()
        self._transfer = self._ledger.begin(self.name)
        self._acknowledged = self._numbers = 0
        self._left = self.world.rng.choice((1, 3, 20))
        self._send()

    def _send(self) -> None:
        rng = self.world.rng
        tp = rng.choice(self._ledger.partitions)
        value = b"%d/%d" % (self._transfer.number, self._numbers)
        now = self.world.now()
        record = ProducerRecord(
            tp.topic, None, value, (), tp.partition, now.wall_ms, partial(self._told, self._transfer.number)
        )
        try:
            appended = self.core.try_append(record, now)
        except KafkaError as error:
            self._met(error)
            return
        if appended is not None:
            self._transfer.written.setdefault(tp, []).append(value)
            self._numbers += 1
            self._left -= 1
        self._run_soon()
        if self._left:
            self.world.after(rng.choice((1, 5, 30)), self._send)
        elif rng.random() < 0.5:
            self._move_offset()
        else:
            self._end()

    def _told(self, number: int, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        if number == self._transfer.number and error is None:
            self._acknowledged += 1

    def _move_offset(self) -> None:
        offsets = {TopicPartition(self._ledger.topic, 0): self._transfer.number}

        def moved() -> None:
            self._transfer.moves_offset = True
            self._end()

        self._start(lambda: self.core.transactions.commit_offsets(offsets, self.name), moved)

    def _end(self) -> None:
        if self.ends or self.world.rng.random() < 0.8:
            self._transfer.commit_asked = True
            self._start(self.core.transactions.commit, self._committed)
        else:
            self._start(self.core.transactions.abort, self._aborted)

    def _committed(self) -> None:
        assert self._acknowledged == self._numbers, "a transaction was committed before its records were acknowledged"
        self._transfer.committed = True
        self.committed += 1
        if self.ends:
            self.finished = True
        else:
            self.world.after(self.world.rng.randint(1, PAUSE_MS_MAX), self._begin)

    def _aborted(self) -> None:
        self.world.marks["client's transaction aborted"] += 1
        self.world.after(self.world.rng.randint(1, PAUSE_MS_MAX), self._begin)
