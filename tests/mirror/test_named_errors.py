"""Errors of a mirror say in which of its two clusters they happened."""

from __future__ import annotations

import pytest

from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode, KafkaError
from raylog.mirror.named_errors import naming


def test_an_error_and_those_of_its_items_name_the_cluster_once() -> None:
    item = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "larger than the brokers")
    with pytest.raises(AdminError) as raised, naming("east"), naming("west"):
        raise AdminError.of({"orders": item}, {})
    assert raised.value.message == item.message == "cluster west: larger than the brokers"
