"""Arguments of a sink that cannot be right are refused by name before there is a query."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import KafkaError
from raylog.raydp_bridge.sink import ExactlyOnceSink, write_stream


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sink": 5}, "sink=5: must be 1 to 100 of the characters"),
        ({"tasks": "x"}, "tasks='x': must be an integer between 1 and 10000"),
        ({"first_batch": 1.0}, "first_batch=1.0: must be an integer between 0 and"),
        ({"replication_factor": 0}, "replication_factor=0: must be an integer between 1 and 32767"),
        ({"spool_bytes": "1M"}, "spool_bytes='1M': must be an integer between 0 and"),
    ],
)
def test_arguments_of_a_sink(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        ExactlyOnceSink(bootstrap_servers="127.0.0.1:1", **arguments)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint_location": None}, "checkpoint_location=None: must be the directory of the query's checkpoint"),
        ({"checkpoint_location": ""}, "checkpoint_location='': must be the directory of the query's checkpoint"),
        ({"checkpoint_location": 5}, "checkpoint_location=5: must be the directory of the query's checkpoint"),
        ({"trigger": "availableNow"}, "trigger must be a mapping such as a dict, not 'availableNow'"),
    ],
)
def test_arguments_of_a_query(arguments: dict[str, Any], message: str) -> None:
    frame: Any = None
    with pytest.raises(KafkaError) as refused:
        write_stream(frame, "t", bootstrap_servers="127.0.0.1:1", **({"checkpoint_location": "/tmp/c"} | arguments))
    assert refused.value.message.startswith(message)
