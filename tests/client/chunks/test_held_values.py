"""The owner of values never holds more than its bytes, and none that is too old."""

from __future__ import annotations

from random import Random

import pytest

from raylog.client.chunks.held_values import HeldValues
from raylog.client.chunks.references import ValueMissing
from raylog.core.errors import KafkaError
from tests.support.forms import by_form


@pytest.mark.parametrize("seed", range(by_form(20, long=1000)))
def test_the_youngest_values_that_fit_are_held(seed: int) -> None:
    random = Random(seed)
    held: HeldValues[str] = HeldValues(bytes_max=100, age_ms_max=50)
    model: list[tuple[str, int, int]] = []
    now_ms = 0
    for number in range(100):
        now_ms += random.randrange(8)
        size, name = random.randrange(1, 60), f"topic/{number}"
        held.begin(name, size, now_ms)
        held.add(name, name)
        with pytest.raises(ValueMissing):
            held.pieces(name, now_ms)  # it is not complete
        held.end(name)
        model = [each for each in model if each[2] + 50 > now_ms]
        while sum(each[1] for each in model) + size > 100:
            del model[0]
        model.append((name, size, now_ms))
        assert held.used_bytes == sum(each[1] for each in model)
        assert list(held.values_of("topic")) == [(each[0], each[2]) for each in model]
        assert all(held.pieces(each[0], now_ms) == [each[0]] for each in model)
    with pytest.raises(ValueMissing, match="its owner does not hold it"):
        held.pieces(model[-1][0], now_ms + 50)
    assert held.used_bytes == 0


def test_a_value_that_is_too_large_or_was_dropped_is_refused() -> None:
    held: HeldValues[str] = HeldValues(bytes_max=100, age_ms_max=50)
    with pytest.raises(KafkaError, match=r"value t/1 has 101 bytes, more than the store may hold \(100\)"):
        held.begin("t/1", 101, 0)
    held.begin("t/2", 100, 0)
    held.begin("t/3", 1, 0)
    with pytest.raises(KafkaError, match="value t/2 was dropped for younger ones before it was complete"):
        held.add("t/2", "piece")
    held.delete("t/3")
    assert held.used_bytes == 0
