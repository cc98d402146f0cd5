"""(shell) The Ray that raylog runs on: the one this process is connected to, one at an address, or a local one.

Ray 2.60 protects a cluster with a token. A local Ray that a program starts gets a new token in the environment of its
processes, which other users of the machine cannot read; nothing is written to the home directory. A Ray that is joined
has a token already. `raylog start`, whose cluster other programs of the same user must find, lets Ray keep the token in
the home directory (`use_token_file`).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from raylog.core.errors import ConfigError

log = logging.getLogger("raylog.actors")
JOIN_SECONDS = 30.0
"""How long Ray may take to be joined: `ray.init` itself tries for minutes where a process of Ray has died."""
CONNECT_SECONDS = 2.0
LOCAL = "local"
"""The address with which `ray.init` starts a Ray."""
TOKEN_FILE = Path("~/.ray/auth_token")
LOCAL_RAY_CPUS = 4
"""Number of CPUs that a local Ray declares: with two, Spark's executors would reserve all of them."""


class OtherTokenError(ConfigError):
    """There is a Ray, which requires another token than this process has."""


def prepare_environment() -> None:
    """Set the environment of Ray's processes. Call it before Ray is imported. Variables that are set are kept."""
    os.environ.setdefault("RAY_LOG_TO_DRIVER", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: brokers would wait for every other process


def use_token_file(address: str | None) -> None:
    """Let a local Ray use the token in ~/.ray/auth_token, which it creates on first use, like `ray.init` by default.

    A Ray at `address` or RAY_ADDRESS is sent a token if this user has one; it may be a Ray without authentication,
    as KubeRay's is by default. Call it before Ray is imported, which reads the mode. Variables that are set are kept.
    """
    if "RAY_AUTH_TOKEN" not in os.environ and (_given(address) == LOCAL or _has_token()):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _has_token() -> bool:
    with suppress(RuntimeError):  # the user has no home directory
        return "RAY_AUTH_TOKEN_PATH" in os.environ or TOKEN_FILE.expanduser().exists()
    return False


def _given(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def join_or_start_ray(address: str | None, before_start: Callable[[], None] = lambda: None) -> bool:
    """Connect this process to Ray. True if a local Ray was started, which the caller must shut down.

    `before_start` is called before a local Ray is started, which cannot be interrupted; it may raise.

    `address` is as for `ray.init`; None means RAY_ADDRESS, else a new local Ray. Raises ConfigError if no Ray responds
    at the address, or it requires another token.
    """
    if "ray" in sys.modules:
        import ray

        if ray.is_initialized():
            return False
    address = _given(address)
    if address != LOCAL:
        join_ray(address)
        return False
    _choose_token()
    # A GCS that has died does not come back: without this Ray's other processes stay for a minute or more.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    ray = _import_ray_quietly()
    before_start()
    try:
        ray.init(
            address=LOCAL,
            num_cpus=LOCAL_RAY_CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except Exception as error:  # Ray raises Exception itself where its processes take longer than 30 s
        raise ConfigError(f"Ray cannot be started on this machine: {_first_line(error)}") from error
    return True


def join_ray(address: str, *, auth_mode: str | None = None) -> None:
    """Connect this process to the Ray at `address`. Raises ConfigError if none responds within JOIN_SECONDS, or it
    requires another token.

    `auth_mode` is the mode that this Ray requires. Without it the token in the home directory is sent, if there is one:
    Ray sends it only to a Ray that it has found by itself, unless RAY_AUTH_MODE=token is set.
    """
    if refuses(address):
        raise ConfigError(f"address={address!r}: cannot join this Ray: nothing listens there, so its GCS has ended")
    if auth_mode is None and "RAY_AUTH_TOKEN" not in os.environ and _has_token():
        auth_mode = "token"
    if auth_mode is not None:
        _use_auth_mode(auth_mode)
    ray = _import_ray_quietly()
    failures: list[BaseException] = []

    def join() -> None:
        try:
            _check_token(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except BaseException as error:  # raised again below
            failures.append(error)

    joining = threading.Thread(target=join, name="join-ray", daemon=True)
    joining.start()
    joining.join(JOIN_SECONDS)
    if joining.is_alive():
        raise ConfigError(
            f"address={address!r}: cannot join this Ray: it did not respond within {JOIN_SECONDS:.0f} s;"
            " its raylet on this host may have ended"
        )
    for failure in failures:
        if isinstance(failure, OtherTokenError):
            raise failure
        if not isinstance(failure, (ConnectionError, ray.exceptions.AuthenticationError, RuntimeError, ValueError)):
            raise failure
        raise ConfigError(f"address={address!r}: cannot join this Ray: {_first_line(failure)}") from failure


def refuses(address: str) -> bool:
    """Whether the host at `host:port` refuses connections: the process that listened there has ended."""
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdecimal():
        return False
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _check_token(address: str) -> None:
    """`ray.init` itself tries for 20 s with a token that is refused, and then reports that it cannot connect.

    Raises OtherTokenError.
    """
    if "/" in address:  # that of a Ray Client
        return
    try:
        from ray._private import services
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        GcsClient(address=services.canonicalize_bootstrap_address_or_die(address))
    except Exception as error:  # what else is wrong, `ray.init` reports
        if type(error).__name__ == "AuthenticationError":  # Ray's, which earlier versions do not have
            raise OtherTokenError(
                f"address={address!r}: cannot join this Ray: it requires another token than that of this process;"
                " set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, and RAY_AUTH_MODE=token"
            ) from error
        log.debug("token not checked", extra={"address": address, "reason": str(error)})


def auth_mode() -> str | None:
    """The authentication mode of the Ray to which this process is connected, from the environment."""
    return os.environ.get("RAY_AUTH_MODE")


def _use_auth_mode(mode: str) -> None:
    """Set the mode unless the environment does. Ray reads it during its import, and must be updated afterwards."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ["RAY_AUTH_MODE"] = mode
    if "ray" in sys.modules:
        import ray._raylet

        ray._raylet.Config.initialize("")  # type: ignore[attr-defined]  # as Ray does itself where it changes the mode


def _import_ray_quietly() -> ModuleType:
    """Import Ray without its informational messages; warnings are shown, except that token authentication is on."""
    import ray

    logging.getLogger("ray").setLevel(logging.WARNING)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    # Outside the main thread its only warning is that it does not handle SIGTERM, which is intended.
    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
    return ray


def _choose_token() -> None:
    """Set a token for a new local Ray. Ray reads it once per process, so a second local Ray uses it too."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if (
        "ray" not in sys.modules
    ):  # Ray reads the mode during its import; afterwards it would detect it and log a message
        os.environ["RAY_AUTH_MODE"] = "token"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
