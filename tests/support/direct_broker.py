"""A cluster of one broker without sockets, for most tests of a broker."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from raylog.controller.controller import Controller
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.sim_disk import SimDisk


class DirectBroker(DirectMember):
    """The broker, and the parts of its cluster that tests use. `restart` is clean by default."""

    def __init__(self, config: dict[str, Any] | None = None, *, seed: int = 0) -> None:
        super().__init__(DirectCluster(0, config, seed=seed), BrokerId(0))
        self.cluster.brokers.append(self)
        self.start()

    @property
    def rng(self) -> random.Random:
        return self.cluster.rng

    @property
    def controller(self) -> Controller:
        return self.cluster.active

    @property
    def controller_disk(self) -> SimDisk:
        return self.cluster.controller_disk

    def restart(self, *, clean: bool = True, power_cut: bool = False) -> None:
        """Restart broker and controller on the same disks."""
        self.stop(clean=clean, power_cut=power_cut, noticed=clean)
        self.cluster.stop_controller(clean=clean, power_cut=power_cut)
        self.cluster.start_controller()
        self.start()

    def now(self) -> Now:
        return self.cluster.now()

    def settle(self) -> None:
        self.cluster.settle()

    def pass_time(self, ms: int) -> None:
        self.cluster.pass_time(ms)

    def create_topic(self, topic: str = "t", *, partitions: int = 1, **configs: str) -> UUID:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return self.cluster.create_topic(topic, partitions=partitions, configs=named)
