"""What a hostile peer produces: valid batches, batches that claim something untrue, and bytes that are no batch."""

from __future__ import annotations

from functools import partial
from random import Random

from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.hostile.responses import Learned
from tests.protocol.records.raw_batches import CONTROL, raw_batch, raw_record
from tests.support.mutations import mutated


def record_set(dice: Random, learned: Learned, now_ms: int) -> bytes:
    """What a Produce carries: mostly a valid batch, else one that claims something untrue, or no batch at all."""
    count = dice.choice((1, 1, 2, 5, 50))
    payload = b"".join(
        raw_record(delta, key=dice.choice((None, b"k")), value=dice.choice((None, b"", dice.randbytes(20))))
        for delta in range(count)
    )
    codec = dice.choice(tuple(Codec))
    batch = partial(raw_batch, base_timestamp=now_ms, max_timestamp=now_ms)
    extreme = dice.choice((2**63 - 1, -(2**63), -1))
    records = [NewRecord(None, b"value", now_ms)] * count
    producer_id, producer_epoch = learned.value("producer_id", dice), learned.value("producer_epoch", dice)
    match dice.randrange(16):
        case 0 | 1 | 2 | 3:
            return batch(payload, count, codec=codec)
        case 4 | 5:
            return bytes(
                build_batch(
                    records,
                    producer_id=-1 if producer_id is None else producer_id,
                    producer_epoch=-1 if producer_epoch is None else producer_epoch,
                    base_sequence=dice.choice((0, 0, 1, count, -1, 2**31 - 1)),
                    transactional=dice.random() < 0.5,
                )
            )
        case 6:
            return batch(payload, dice.choice((0, -1, count + 1, 2**31 - 1, -(2**31))), codec=codec)
        case 7:
            return batch(payload, count, last_offset_delta=dice.choice((-1, count, 2**31 - 1)))
        case 8:
            return batch(payload, count, base_timestamp=extreme, max_timestamp=dice.choice((extreme, 0, now_ms)))
        case 9:
            return batch(payload, count, attributes=dice.choice((1, 2, 3, 4, 5, 7, CONTROL, 0x40, 0x7FF8)))
        case 10:
            return batch(payload, count, codec=codec) * dice.choice((2, 100))
        case 11:
            return batch(mutated(payload, dice), count, codec=codec)
        case 12:
            return mutated(batch(payload, count, codec=codec), dice)
        case 13:
            old = bytearray(batch(payload, count))
            old[16] = dice.choice((0, 1, 3, 255))
            return bytes(old)
        case 14:
            return dice.choice((b"", b"\0" * 61, dice.randbytes(100)))
        case _:
            return batch(bytes(1 << 20), 1, codec=codec)
