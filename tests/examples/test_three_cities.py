"""A city is lost and comes back: the audit's numbers are those that stock clients find in the logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.three_cities import CITIES, CONFIG, GENEVA, LISBON, OSLO, Exercise, Seen, main, play
from raylog.mirror.config import MirrorConfig
from raylog.mirror.shard import ShardSettings
from tests.client.served import Target
from tests.mirror.flows import RunningFlow, seen
from tests.support.cluster_process import ClusterProcess
from tests.support.cluster_thread import cluster_thread
from tests.support.forms import by_form
from tests.support.ports import free_port

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "examples.md"
LOST = {
    LISBON: Seen(2200, unknown=420),
    OSLO: Seen(2500, lost=120),
    GENEVA: Seen(2500, lost=120),
    "billing": Seen(2550, lost=70, duplicated=200),
}
FOUND = {**dict.fromkeys(CITIES, Seen(2620)), "billing": Seen(2620, duplicated=200)}


class ProcessCity:
    """A broker and its controller in a process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = {
            **{key: str(value) for key, value in CONFIG.items()},
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        }
        self._process = ClusterProcess(self._config, path)
        self.bootstrap_servers = self._process.bootstrap_servers

    def lose(self) -> None:
        self._process.kill()

    def come_back(self) -> None:
        self._process = ClusterProcess(self._config, self._path)


class StableCity:
    """Is not lost."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def lose(self) -> None:
        raise AssertionError

    come_back = lose


class ThreadMirror:
    """The flows, each in a thread."""

    def __init__(self, config: MirrorConfig) -> None:
        settings = ShardSettings(exactly_once=True, commit_interval_ms=50, backoff_ms_max=500)
        self._flows = [RunningFlow(flow, settings, has_control=True) for flow in config.flows]

    def stop(self) -> None:
        for flow in self._flows:
            flow.stop()
            assert flow.error is None


@pytest.fixture
def cities(tmp_path: Path) -> Iterator[dict[str, ProcessCity | StableCity]]:
    with ExitStack() as stops:
        lisbon = ProcessCity(tmp_path / LISBON)
        stops.callback(lisbon.lose)
        oslo, geneva = (stops.enter_context(cluster_thread(CONFIG, tmp_path / name)) for name in (OSLO, GENEVA))
        yield {LISBON: lisbon, OSLO: StableCity(oslo.bootstrap_servers), GENEVA: StableCity(geneva.bootstrap_servers)}


def test_the_audit_tells_what_is_lost_late_and_twice(cities: dict[str, ProcessCity | StableCity]) -> None:
    exercise = Exercise(cities, ThreadMirror)
    said: list[str] = []
    try:
        before, after = play(exercise, said.append)
    finally:
        exercise.close()
    assert before == LOST
    assert after == FOUND
    assert "\n".join(said) in PAGE.read_text()
    logs = {name: Target(city.bootstrap_servers) for name, city in cities.items()}
    sold = {city: [record[1] for record in seen(logs[city], "orders")] for city in (LISBON, OSLO)}
    assert {city: len(orders) for city, orders in sold.items()} == {LISBON: 1320, OSLO: 1300}
    for source, target in ((LISBON, OSLO), (OSLO, LISBON), (LISBON, GENEVA), (OSLO, GENEVA)):
        assert [record[1] for record in seen(logs[target], f"{source}.orders")] == sold[source]


@pytest.mark.ray
@pytest.mark.skipif(not by_form(0, long=1), reason="takes half a minute: --long")
def test_in_ray(ray_runtime: None, capsys: pytest.CaptureFixture[str]) -> None:
    main()
    said = [line for line in capsys.readouterr().out.splitlines() if line and "(raylet)" not in line]
    assert "\n".join(said) in PAGE.read_text()
