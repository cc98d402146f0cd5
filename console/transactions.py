"""(shell) Transactions: list and describe them, and fence the producers of one that must end."""

from __future__ import annotations

from typing import Any, Final

from raylog.client.admin.transactions import TransactionDescription, TransactionListing
from raylog.console.fields import Fields
from raylog.console.paging import Paging
from raylog.console.visitor import DETAIL_SECONDS, Visitor, of_those_that_answer, what_succeeded
from raylog.transport.system_time import now

STATES: Final = {
    name: name for name in ("", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty")
}


async def list_transactions(visitor: Visitor, fields: Fields) -> Any:
    """A page of the transactional ids, with the partitions of open transactions and for how long they are open."""
    state = fields.choice("state", STATES, "")
    asked = visitor.admin.list_transactions(states=[state] if state else [], timeout=DETAIL_SECONDS)
    listed = await of_those_that_answer(asked)
    page = Paging.of(fields, ("name", "state")).page(listed, _id, {"state": lambda each: each.state})
    described: dict[str, TransactionDescription] = {}
    if page.items:
        names = [each.transactional_id for each in page.items]
        described, _ = await what_succeeded(visitor.admin.describe_transactions(names, timeout=DETAIL_SECONDS))
    now_ms = now().wall_ms

    def row(each: TransactionListing) -> dict[str, Any]:
        own = described.get(each.transactional_id)
        start_ms = None if own is None else own.start_time_ms
        return {
            "name": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "producer_epoch": None if own is None else own.producer_epoch,
            "timeout_ms": None if own is None else own.timeout_ms,
            "open_ms": None if start_ms is None else max(0, now_ms - start_ms),
            "partitions": [] if own is None else [str(tp) for tp in own.partitions[:100]],
            "more_partitions": 0 if own is None else max(0, len(own.partitions) - 100),
        }

    return page.shown(row)


async def fence(visitor: Visitor, fields: Fields) -> Any:
    """Abort the open transaction of this id, and refuse its producer from now on."""
    name = fields.text("name")
    found = await visitor.admin.fence_producers(name)
    return {"name": name, "producer_epoch": found[name].producer_epoch}


def _id(transaction: TransactionListing) -> str:
    return transaction.transactional_id
