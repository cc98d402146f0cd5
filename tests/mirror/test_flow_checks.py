"""What a mirror does not do is an error, and no promise."""

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


def test_offsets_of_groups_are_not_promised() -> None:
    with pytest.raises(ConfigError, match=r"A->B\.sync\.group\.offsets\.enabled=true: not supported yet"):
        check("A->B", sync_group_offsets_enabled="true")
