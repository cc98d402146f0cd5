"""Distribution of a test run over processes (`pytest -n`): by file, with all tests on Ray in the first process.

A process has one Ray and one Spark session, which start slowly. The longest files are scheduled first, so that none of
them runs alone at the end.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

OWN_RAY = (
    "tests/ray/test_many_hosts.py",
    "tests/compat/test_kafka_python_suite.py",
    "tests/cli/test_start.py",
    "tests/examples/test_tutorial.py",
)
"""Files whose tests start a Ray in a process of their own."""
ON_RAY = (
    "tests/cli/test_broker_set.py",
    "tests/compat/test_spark.py",
    "tests/examples/test_flight_pipeline.py",
    "tests/ray/",
    "tests/ray_data/",
    "tests/spark/",
)
"""The other files and folders on Ray; those that are all on one Ray."""
SECOND = (*OWN_RAY, "tests/sim/", "tests/compat/", "tests/examples/", "tests/protocol/")


def is_on_ray(nodeid: str) -> bool:
    return nodeid.startswith(ON_RAY) and not nodeid.startswith(OWN_RAY)


def rank(nodeid: str) -> int:
    """Tests with the lowest rank are scheduled first."""
    if is_on_ray(nodeid):
        return 0
    return next((number for number, folder in enumerate(SECOND, 1) if nodeid.startswith(folder)), len(SECOND) + 1)


class SpreadByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist brings no types
    def _split_scope(self, nodeid: str) -> str:
        return "ray" if is_on_ray(nodeid) else nodeid.partition("::")[0]
