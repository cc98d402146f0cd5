"""The loop of `record_scan`, for Python and for numba; `_record_scan.c` is the same in C.

It goes through the records of a batch, whose bytes arrive in pieces of any size, and stops at an event. What it knows
is in the state, 14 numbers of 64 bits, so that a piece may end anywhere. Its rules:

- all numbers are int64, since numba converts mixed signedness to floats;
- a length is compared with the remaining size of its record before it is used;
- the compiled code depends on this file only, since numba's cache checks this file only.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

# The state. The first seven fields are zero at the start, except INDEX, which is -1.
PHASE = 0  # what the next varint means
NUMBER = 1  # the bits of a varint that has begun
SHIFT = 2  # their number
SKIP = 3  # bytes of a key, a value or a name that are still to come
LEFT = 4  # bytes of the record behind those
HEADERS = 5  # headers of the record that are still to come
INDEX = 6  # of the current record
COUNT = 7  # of the records, as the batch says
LOWEST, HIGHEST = 8, 9  # the range of timestamps, as differences from the base timestamp
NONE = 10  # the difference that says "no timestamp"; always allowed
NEEDS_KEY = 11  # 1: a record without a key is an event
LARGEST = 12  # the largest difference so far
EVENT = 13  # why the loop ended

_LENGTH, _TIMESTAMP, _OFFSET, _KEY, _VALUE, _HEADER_COUNT, _NAME, _HEADER_VALUE = range(8)

NOTHING = 0  # the data is used up
BAD_TIMESTAMP, NO_KEY = 1, 2  # of the current record; the scan can go on
BAD_VARINT, BAD_LENGTH, BAD_OFFSET, BAD_FIELD, BAD_HEADER_COUNT, BAD_NAME, BAD_SIZE, EXCESS = range(3, 11)

_RECORD_BYTES_MIN = 6
"""Attributes, two differences, two lengths and the number of headers."""
_INT64_MAX = (1 << 63) - 1


def scan(state: MutableSequence[int], data: Sequence[int], at: int) -> int:
    """Go on at the position `at` of `data`; return the position where it ended and sets EVENT."""
    phase = state[PHASE]
    number = state[NUMBER]
    shift = state[SHIFT]
    skip = state[SKIP]
    left = state[LEFT]
    headers = state[HEADERS]
    index = state[INDEX]
    largest = state[LARGEST]
    event = NOTHING
    end = len(data)
    while event == NOTHING:
        if skip > end - at:
            skip -= end - at
            at = end
            break
        at += skip
        skip = 0
        if at == end:
            break
        if phase == _LENGTH:
            if index + 1 == state[COUNT]:
                event = EXCESS
                break
        else:
            left -= 1
            if left < 0:
                at += 1
                event = BAD_SIZE
                break
        byte = data[at]
        at += 1
        if (shift == 28 and byte > 15 and phase != _TIMESTAMP) or (shift == 63 and byte > 1):
            event = BAD_VARINT
            break
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            continue
        value = ((number >> 1) & _INT64_MAX) ^ -(number & 1)
        number = 0
        shift = 0
        if phase == _LENGTH:
            if value < _RECORD_BYTES_MIN:
                event = BAD_LENGTH
                break
            index += 1
            skip = 1  # attributes, unused
            left = value - 1
            phase = _TIMESTAMP
        elif phase == _TIMESTAMP:
            largest = max(largest, value)
            if not state[LOWEST] <= value <= state[HIGHEST] and value != state[NONE]:
                event = BAD_TIMESTAMP
            phase = _OFFSET
        elif phase == _OFFSET:
            if value != index:
                event = BAD_OFFSET
            phase = _KEY
        elif phase == _HEADER_COUNT:
            if value < 0 or 2 * value > left:
                event = BAD_HEADER_COUNT
                break
            headers = value
            phase = _NAME if headers else _LENGTH
            if not headers and left:
                event = BAD_SIZE
        elif phase == _NAME:
            if value < 0:
                event = BAD_NAME
                break
            skip = value
            left -= value
            if left < 0:
                event = BAD_SIZE
            phase = _HEADER_VALUE
        else:
            if value < -1:
                event = BAD_FIELD
                break
            skip = max(value, 0)
            left -= skip
            if phase == _KEY:
                if value < 0 and state[NEEDS_KEY]:
                    event = NO_KEY
                phase = _VALUE
            elif phase == _VALUE:
                phase = _HEADER_COUNT
            else:
                headers -= 1
                phase = _NAME if headers else _LENGTH
            if left < 0 or (phase == _LENGTH and left):
                event = BAD_SIZE
    state[PHASE] = phase
    state[NUMBER] = number
    state[SHIFT] = shift
    state[SKIP] = skip
    state[LEFT] = left
    state[HEADERS] = headers
    state[INDEX] = index
    state[LARGEST] = largest
    state[EVENT] = event
    return at
