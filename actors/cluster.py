"""(shell) A raylog cluster as its user holds it: start one, connect to one, stop it."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from raylog.actors.announcement import find_announced
from raylog.actors.local_ray import join_or_start_ray, join_ray, prepare_environment
from raylog.broker.config import broker_configs
from raylog.broker.listeners import plan_listeners
from raylog.core.errors import ConfigError

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus

log = logging.getLogger("raylog.actors.cluster")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_PORT = 9092
STOP_SECONDS = 30.0
STATUS_SECONDS = 5.0
"""A broker that has not answered by then is on its way back: a running one answers in milliseconds."""


class Cluster:
    """A running cluster. As a context manager it stops what it has started, and only that."""

    def __init__(
        self,
        name: str,
        broker: Any,
        status: BrokerStatus,
        *,
        owned: bool = False,
        owns_ray: bool = False,
        temporary_dir: str | None = None,
    ) -> None:
        """Not to be called: use `start` or `connect`."""
        self.name = name
        self.handle = broker
        """The Ray actor handle of broker 0."""
        self.bootstrap_servers = f"{status.host}:{status.port}"
        self._owned = owned
        self._owns_ray = owns_ray
        self._temporary_dir = temporary_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self.stop()

    @property
    def ray_address(self) -> str:
        """Where other processes join the Ray of this cluster, as `ray.init` takes it."""
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def status(self) -> list[BrokerStatus]:
        """One entry for each broker."""
        return [_ask_status(self.handle, 0)]

    def stop(self) -> None:
        """Stop every actor cleanly; a local Ray started for this cluster goes too. Stopping twice is allowed."""
        import ray

        if self.handle is None or not ray.is_initialized():
            return
        try:
            ray.get(self.handle.stop.remote(), timeout=STOP_SECONDS)
        except ray.exceptions.RayError as error:
            log.warning("broker did not stop cleanly", extra={"cluster": self.name, "reason": str(error)})
        ray.kill(self.handle, no_restart=True)
        self.handle = None
        if self._owns_ray:
            ray.shutdown()
        if self._temporary_dir is not None:
            shutil.rmtree(self._temporary_dir, ignore_errors=True)


def start(
    name: str = "raylog",
    *,
    data_dir: str | None = None,
    config: Mapping[str, Any] | None = None,
    brokers: int = 1,
    port: int | None = None,
    address: str | None = None,
) -> Cluster:
    """A new cluster, ready for clients when this returns.

    `data_dir` keeps the data and may hold that of an earlier cluster of the same name, which then goes on; without it
    the data lives in a temporary directory and is gone after `stop`. `config` is Kafka's broker configuration. `port`
    is short for `listeners=PLAINTEXT://127.0.0.1:<port>`; without either a free port is taken. `address` is Ray's, as
    for `ray.init`; without it the Ray this process is connected to is used, then RAY_ADDRESS, then a new local one.

    Raises ConfigError for a configuration that is not served and where a cluster of this name runs already.
    """
    check_name(name)
    if brokers != 1:
        raise ConfigError(f"brokers={brokers}: one broker is all that is served so far")
    texts = _texts(config, port)
    plan_listeners(broker_configs(texts))
    prepare_environment()
    owns_ray = join_or_start_ray(address)
    import ray

    from raylog.actors.broker import BrokerActor, BrokerSpec

    temporary_dir = None
    if data_dir is None:
        data_dir = temporary_dir = tempfile.mkdtemp(prefix=f"raylog-{name}-")
    broker = None
    try:
        options = BrokerActor.options(  # type: ignore[attr-defined]
            name=_actor_name(0),
            namespace=_namespace(name),
            lifetime="detached",
            scheduling_strategy=_beside_this_process(),
        )
        try:
            broker = options.remote(BrokerSpec(name, 0, data_dir, texts))
        except ValueError as error:
            raise ConfigError(f"name={name!r}: a cluster of this name runs already; use raylog.connect") from error
        status = ray.get(broker.ready.remote())
    except BaseException as error:
        if broker is not None:
            ray.kill(broker, no_restart=True)
        if owns_ray:
            ray.shutdown()
        if temporary_dir is not None:
            shutil.rmtree(temporary_dir, ignore_errors=True)
        if isinstance(error, ray.exceptions.RayTaskError):
            raise error.cause from None
        raise
    return Cluster(name, broker, status, owned=True, owns_ray=owns_ray, temporary_dir=temporary_dir)


def connect(name: str = "raylog", *, address: str | None = None) -> Cluster:
    """The running cluster of this name, once it serves.

    It is looked for in the Ray this process is connected to, else at `address`, at RAY_ADDRESS, where `raylog start`
    of this user has announced it, or in the Ray that `ray.init("auto")` finds. A local Ray that another program started
    by `raylog.start` is open to processes that have its RAY_AUTH_TOKEN. Raises ConfigError where there is none.
    """
    with _joined(name, address) as broker:
        import ray

        status: BrokerStatus = ray.get(broker.ready.remote())
        return Cluster(name, broker, status)


def cluster_status(name: str = "raylog", *, address: str | None = None) -> list[BrokerStatus]:
    """One entry for each broker, also while it cannot serve; looked for as `connect` does. Raises ConfigError."""
    with _joined(name, address) as broker:
        return [_ask_status(broker, 0)]


@contextmanager
def _joined(name: str, address: str | None) -> Iterator[Any]:
    """The handle of broker 0. Where the block fails, a Ray that was joined for it is left again."""
    check_name(name)
    prepare_environment()
    was_connected = _is_connected()
    if not was_connected:
        _join_for(name, address)
    import ray

    try:
        try:
            broker = ray.get_actor(_actor_name(0), namespace=_namespace(name))
        except ValueError as error:
            raise ConfigError(f"name={name!r}: no cluster of this name runs in this Ray") from error
        yield broker
    except BaseException:
        if not was_connected:
            ray.shutdown()
        raise


def _join_for(name: str, address: str | None) -> None:
    if address is not None or "RAY_ADDRESS" in os.environ:
        join_ray(address or os.environ["RAY_ADDRESS"])
    elif (announced := find_announced(name)) is not None:
        join_ray(announced.ray_address, auth_mode=announced.ray_auth_mode)
    else:
        try:
            join_ray("auto")
        except ConfigError as error:
            message = f"name={name!r}: no `raylog start` of this user runs such a cluster, and no other Ray was found"
            raise ConfigError(message) from error


def _is_connected() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def _ask_status(broker: Any, broker_id: int) -> BrokerStatus:
    import ray

    from raylog.actors.broker import BrokerStatus

    try:
        status: BrokerStatus = ray.get(broker.status.remote(), timeout=STATUS_SECONDS)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return BrokerStatus(broker_id, "", 0, 0, "", "restarting", "", {})
    return status


def check_name(name: str) -> None:
    """Raises ConfigError for what cannot be a cluster's name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name={name!r}: must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )


def _actor_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def _namespace(name: str) -> str:
    return f"raylog/{name}"


def _texts(config: Mapping[str, Any] | None, port: int | None) -> dict[str, Any]:
    texts = dict(config or {})
    for key in ("node.id", "broker.id"):
        if key in texts:
            raise ConfigError(f"{key}={texts[key]!r}: raylog numbers its brokers itself, from 0; leave the key out")
    if port is not None:
        if "listeners" in texts:
            raise ConfigError("port and config['listeners'] say the same thing: give one of them")
        if not 0 <= port <= 65535:
            raise ConfigError(f"port={port}: must be between 0 and 65535")
        texts["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    return {"listeners": "PLAINTEXT://127.0.0.1:0", **texts}


def _beside_this_process() -> Any:
    """The node of the caller, whose disk `data_dir` names. Soft, since node ids do not outlive their raylet: that the
    directory is there is checked by the actor, not by its placement."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
