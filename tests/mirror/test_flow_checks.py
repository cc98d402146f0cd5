"""Flows that would copy records in a circle are an error."""

from __future__ import annotations

import pytest

from raylog.core.errors import ConfigError
from raylog.mirror.config import mirror_config
from raylog.mirror.flow_checks import check_built

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def check(*flows: str, **given: str) -> None:
    entries = {"clusters": "A,B,C"} | {f"{alias}.bootstrap.servers": "x:1" for alias in "ABC"}
    entries |= {f"{flow}.enabled": "true" for flow in flows}
    check_built(mirror_config(entries | {key.replace("_", "."): text for key, text in given.items()}).flows)


@pytest.mark.parametrize("flows", [("A->B", "B->A"), ("A->B", "B->C", "C->A")], ids=["two", "three"])
def test_loops_need_names_that_tell_the_source(flows: tuple[str, ...]) -> None:
    check(*flows)
    check(*flows[:-1], replication_policy_class=IDENTITY)
    with pytest.raises(ConfigError, match="from A back to it"):
        check(*flows, replication_policy_class=IDENTITY)
