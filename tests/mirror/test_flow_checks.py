"""Flows that would copy records without end, or twice, are an error; those that need not know of origins do not."""

from __future__ import annotations

import pytest

from raylog.core.errors import ConfigError, KafkaError
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.flow_checks import check_built, check_mirror_maker

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
DEFAULT = "DefaultReplicationPolicy"
RING = ("A->B", "B->C", "C->A")
MESH = ("A->B", "A->C", "B->A", "B->C", "C->A", "C->B")


def flows(*names: str, **given: str) -> dict[str, FlowConfig]:
    entries = {"clusters": "A,B,C,D,E"} | {f"{alias}.bootstrap.servers": "x:1" for alias in "ABCDE"}
    entries |= {f"{name}.enabled": "true" for name in names} | {"replication.policy.class": IDENTITY}
    config = mirror_config(entries | {key.replace("_", "."): text for key, text in given.items()})
    check_built(config.flows)
    return {flow.name: flow for flow in config.flows}


@pytest.mark.parametrize("names", [RING[:2], ("A->B", "A->C"), ("A->C", "B->C")])
def test_flows_that_lead_to_each_cluster_once_copy_all_that_they_read(names: tuple[str, ...]) -> None:
    assert not any(flow.by_origin or flow.others for flow in flows(*names).values())


@pytest.mark.parametrize("names", [("A->B", "B->A"), RING, MESH, ("A->B", "B->C", "A->C")])
def test_flows_of_a_loop_and_of_a_mesh_copy_by_origin_and_translate_no_offsets(names: tuple[str, ...]) -> None:
    for flow in flows(*names, **{"D->E.enabled": "true"}).values():
        assert flow.by_origin is (flow.name != "D->E")
        assert flow.emit_offset_syncs is not flow.by_origin
        assert (flow.emit_checkpoints_ms, flow.sync_topic_configs_ms) == (
            (None, None) if flow.by_origin else (60_000, 600_000)
        )
    assert not any(flow.by_origin for flow in flows(*names, replication_policy_class=DEFAULT).values())
    with pytest.raises(ConfigError, match=r"A->B\.sync\.group\.offsets\.enabled=true: must be false"):
        flows(*names, sync_group_offsets_enabled="true")


def test_a_flow_that_leads_to_a_loop_copies_by_origin_too() -> None:
    assert all(flow.by_origin for flow in flows("D->A", *RING).values())


def test_records_are_passed_on_by_the_one_way_on_which_they_come_first() -> None:
    def passed_on(flow: FlowConfig) -> dict[str, bool]:
        return {end.alias: passes for end, passes in flow.others}

    assert passed_on(flows(*MESH)["B->C"]) == {"A": False}
    assert passed_on(flows(*RING)["B->C"]) == {"A": True}
    star = flows("A->B", "B->A", "B->C", "C->B")
    assert passed_on(star["B->C"]) == {"A": True}
    assert passed_on(star["C->B"]) == {"A": False}  # they come from B


@pytest.mark.parametrize(
    "names",
    [("A->B", "A->C", "B->D", "C->D"), ("A->B", "B->C", "C->D", "D->A", "B->A", "C->B", "D->C", "A->D")],
    ids=["two ways", "two-way ring of four"],
)
def test_two_ways_to_a_cluster_need_a_flow_of_their_own(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"by B and by [CD], under the same names: enable A->[CD], or disable a flow"):
        flows(*names)
    flows(*names, replication_policy_class=DEFAULT)


def test_a_loop_with_names_of_both_kinds_is_an_error() -> None:
    with pytest.raises(ConfigError, match="A->B is in a loop with flows whose names do not tell the source"):
        flows(*RING, **{"A->B.replication.policy.class": DEFAULT})
    flows("A->B", "B->C", **{"A->B.replication.policy.class": DEFAULT})
    flows("A->B", "B->A", "B->C", **{f"{name}.replication.policy.class": DEFAULT for name in ("A->B", "B->A")})


def test_a_mirror_maker_that_copies_back_is_known_by_its_topics() -> None:
    flow = flows("A->B")["A->B"]
    copies = ["orders", "mm2-configs.B.internal", "B.checkpoints.internal"]
    for topic in copies[1:]:  # workers that only write heartbeats, and a flow of ours
        check_mirror_maker(flow, ["mm2-configs.A.internal", "A.checkpoints.internal", topic])
    with pytest.raises(KafkaError, match=r"'mm2-configs\.B\.internal' .* of a MirrorMaker that copies the other way"):
        check_mirror_maker(flow, copies)
