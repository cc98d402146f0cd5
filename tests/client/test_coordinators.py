"""A client finds the coordinators of groups and transactional ids, keeps them, and looks again when they have moved."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.client.test_network_client import SETTINGS, NoChance, shown

GROUP, TRANSACTION = KeyType.GROUP, KeyType.TRANSACTION


class Bench:
    """A user that names keys, a cluster that answers from a table, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, version: int = 6) -> None:
        self.clock_ms = 0
        self.version = version
        self.network = NetworkClient([("h", 1)], SETTINGS, NoChance())
        self.network.metadata.answered(shown([1, 2, 3]), Now(0, 0))
        self.coordinators = Coordinators(self.network)
        self.requests: list[FindCoordinatorRequest] = []
        self.pending: list[tuple[Any, Any, Any]] = []
        self.cluster: dict[str, int | ErrorCode] = {}
        monkeypatch.setattr(self.network, "ask_any", lambda *given: self.pending.append(given[:3]))

    def run(self) -> None:
        """One turn of the client, and the answers to what it asks."""
        now = Now(self.clock_ms, 0)
        self.coordinators.run(now)
        pending, self.pending = self.pending, []
        for request_for, on_answer, on_failure in pending:
            request = request_for(lambda key: self.version)
            self.requests.append(request)
            found = [partial(self._found, key) for key in request.coordinator_keys or (request.key,)]
            if any(self.cluster.get(call.args[0]) is ErrorCode.NETWORK_EXCEPTION for call in found):
                on_failure(KafkaError(ErrorCode.NETWORK_EXCEPTION), now)
            elif self.version >= 4:
                on_answer(FindCoordinatorResponse(coordinators=tuple(call(Coordinator) for call in found)), now)
            else:
                on_answer(found[0](lambda key, **rest: FindCoordinatorResponse(**rest)), now)

    def _found(self, key: str, kind: Any) -> Any:
        node = self.cluster[key]
        if isinstance(node, ErrorCode):
            return kind(key=key, node_id=-1, error_code=node)
        return kind(key=key, node_id=node, error_code=ErrorCode.NONE)


@pytest.fixture(params=[1, 3, 4, 6])
def bench(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Bench:
    return Bench(monkeypatch, request.param)


def test_it_is_found_once_and_kept(bench: Bench) -> None:
    bench.cluster = {"g": 2, "h": 3}
    assert [bench.coordinators.node_id(GROUP, key) for key in ("g", "h")] == [None, None]
    assert bench.coordinators.next_deadline_ms() == 0
    bench.run()
    bench.run()
    assert [bench.coordinators.node_id(GROUP, key) for key in ("g", "h")] == [2, 3]
    bench.run()
    assert len(bench.requests) == (1 if bench.version >= 4 else 2)
    assert bench.coordinators.next_deadline_ms() is None


def test_groups_and_transactional_ids_are_apart(bench: Bench) -> None:
    bench.cluster = {"same": 1}
    bench.coordinators.node_id(TRANSACTION, "same")
    bench.run()
    bench.cluster = {"same": 2}
    bench.coordinators.node_id(GROUP, "same")
    bench.run()
    assert [request.key_type for request in bench.requests] == [1, 0]
    assert bench.coordinators.node_id(TRANSACTION, "same") == 1
    assert bench.coordinators.node_id(GROUP, "same") == 2


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION])
def test_one_that_has_moved_is_looked_for_again(bench: Bench, code: ErrorCode) -> None:
    bench.cluster = {"g": 2}
    bench.coordinators.node_id(GROUP, "g")
    bench.run()
    bench.coordinators.refused(GROUP, "g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert bench.coordinators.node_id(GROUP, "g") == 2
    bench.cluster = {"g": 3}
    bench.coordinators.refused(GROUP, "g", code)
    assert bench.coordinators.node_id(GROUP, "g") is None
    bench.run()
    assert bench.coordinators.node_id(GROUP, "g") == 3


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION])
def test_errors_that_pass_are_retried_with_growing_pauses(bench: Bench, code: ErrorCode) -> None:
    bench.cluster = {"g": code}
    times = []
    for bench.clock_ms in range(0, 2001, 50):
        bench.coordinators.node_id(GROUP, "g")
        before = len(bench.requests)
        bench.run()
        times += [bench.clock_ms] * (len(bench.requests) - before)
    assert times == [0, 100, 300, 700, 1500]
    assert bench.coordinators.next_deadline_ms() == 2500
    bench.cluster = {"g": 1}
    bench.clock_ms = 2500
    bench.run()
    assert bench.coordinators.node_id(GROUP, "g") == 1


def test_an_error_that_lasts_is_raised_once(bench: Bench) -> None:
    bench.cluster = {"g": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    bench.coordinators.node_id(GROUP, "g")
    bench.run()
    with pytest.raises(KafkaError) as raised:
        bench.coordinators.node_id(GROUP, "g")
    assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    bench.cluster = {"g": 1}
    assert bench.coordinators.node_id(GROUP, "g") is None
    bench.clock_ms = 100
    bench.run()
    assert bench.coordinators.node_id(GROUP, "g") == 1


@pytest.mark.parametrize("key", ["\udcff", "x" * 40_000])
def test_a_key_that_no_request_can_name_is_refused_at_once(bench: Bench, key: str) -> None:
    bench.cluster = {"g": 2}
    bench.coordinators.node_id(GROUP, "g")
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            bench.coordinators.node_id(GROUP, key)
        assert raised.value.code is ErrorCode.INVALID_REQUEST
        bench.run()
    assert bench.coordinators.node_id(GROUP, "g") == 2


def test_a_coordinator_that_is_not_in_the_metadata(bench: Bench) -> None:
    """Metadata is asked for, and the coordinator again: one that has just started appears, one that is gone moves."""
    bench.cluster = {"g": 9}
    bench.coordinators.node_id(GROUP, "g")
    bench.network.metadata.request(Now(0, 0))
    bench.network.metadata.answered(shown([1, 2, 3]), Now(0, 0))
    bench.run()
    assert bench.coordinators.node_id(GROUP, "g") is None
    due_ms = bench.network.metadata.next_request_ms()
    assert due_ms is not None
    assert due_ms <= 1000
    bench.network.metadata.answered(shown([1, 9]), Now(0, 0))
    bench.clock_ms = 100
    bench.run()
    assert bench.coordinators.node_id(GROUP, "g") == 9
    bench.network.metadata.answered(shown([1, 2]), Now(0, 0))
    assert bench.coordinators.node_id(GROUP, "g") is None
