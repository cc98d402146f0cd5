"""A record is shown within bounds, whatever it contains."""

from __future__ import annotations

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console.messages import PREVIEW_CHARACTERS, _Show
from raylog.console.value_formats import AUTO, AVRO, HEX


def test_a_value_that_cannot_be_decoded_is_shown_as_hex() -> None:
    """The other records of its page are shown."""

    def fails(value: bytes) -> None:
        raise ZeroDivisionError(value)

    found = _Show(AUTO, AVRO, fails).record(ConsumerRecord("t", 0, 0, 0, 0, b"k", b"v", ()), PREVIEW_CHARACTERS)
    assert (found["key"]["text"], found["value"]["format"]) == ("k", HEX)


def test_the_names_of_headers_are_cut() -> None:
    record = ConsumerRecord("t", 0, 0, 0, 0, b"k", b"v", (("h" * 900_000, b""), ("short", b"x")))
    found = _Show(AUTO, AUTO, None).record(record, PREVIEW_CHARACTERS)
    assert [len(each["name"]) for each in found["headers"]] == [200, 5]
