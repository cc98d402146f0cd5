"""Nodes are restarted one at a time, those that do not run first and all together."""

from __future__ import annotations

from raylog.actors.restart_order import restart_order

NODES = ["controller-0", "controller-1", "controller-2", "broker-2", "broker-10"]
RUNNING = {node: node == "controller-0" for node in NODES}


def test_without_an_authorizer_brokers_come_first_and_the_active_controller_last() -> None:
    order = restart_order(NODES, RUNNING, controllers_first=False)
    assert order == [("broker-2",), ("broker-10",), ("controller-1",), ("controller-2",), ("controller-0",)]


def test_with_an_authorizer_controllers_come_first() -> None:
    order = restart_order(NODES, RUNNING, controllers_first=True)
    assert order == [("controller-1",), ("controller-2",), ("controller-0",), ("broker-2",), ("broker-10",)]


def test_nodes_that_do_not_run_are_started_together_before_all_others() -> None:
    running = {"broker-10": False, "controller-0": True, "controller-2": False}
    order = restart_order(NODES, running, controllers_first=False)
    assert order == [("controller-1", "broker-2"), ("broker-10",), ("controller-2",), ("controller-0",)]
