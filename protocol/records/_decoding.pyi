from typing import TypeVar

from raylog.protocol.records.compression import Buffer

R = TypeVar("R", bound=tuple[object, ...])

def decode(
    data: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
    timestamp_type: int,
    from_offset: int,
    record_type: type[R],
    prefix: tuple[object, ...],
    /,
) -> list[R] | None: ...
