"""Hosts as network namespaces on one virtual switch, between which single directions can be cut.

Nothing is created in the network of the machine, except the names of the namespaces, which contain this process's pid.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import get_native_id

NOWHERE = "02:00:00:00:00:ff"
"""The hardware address of no host: a packet to it is lost without a notice to the sender."""
_CLONE_NEWNET = 0x40000000


@cache
def why_no_networks() -> str:
    """Why this process cannot create networks; empty if it can."""
    try:
        with network(["probe"]):
            return ""
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be used: {error.stderr.strip()}"


class Network:
    """Hosts with the addresses 10.77.0.1 and following."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Use `network` instead."""
        self._names = {host: f"raylog-{os.getpid()}-{host}" for host in hosts}
        self._switch = f"raylog-{os.getpid()}-switch"
        self.addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}

    def prefix(self, host: str) -> list[str]:
        """The beginning of a command that runs on the host."""
        return ["nsenter", f"--net=/run/netns/{self._names[host]}"]

    @contextmanager
    def entered(self, host: str) -> Iterator[None]:
        """The block runs on the host, and with it the threads and processes that it starts."""
        own = os.open(f"/proc/self/task/{get_native_id()}/ns/net", os.O_RDONLY)
        other = os.open(f"/run/netns/{self._names[host]}", os.O_RDONLY)
        try:
            _enter(other)
            yield
        finally:
            _enter(own)
            os.close(own)
            os.close(other)

    def cut(self, sender: str, receiver: str) -> None:
        """Lose all packets from one host to the other; those of the other direction still arrive."""
        entry = [self.addresses[receiver], "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0"]
        _run("ip", "-n", self._names[sender], "neigh", "replace", *entry)

    def restore(self, sender: str, receiver: str) -> None:
        _run("ip", "-n", self._names[sender], "neigh", "del", self.addresses[receiver], "dev", "eth0")

    def narrow(self, host: str) -> None:
        """Send from the host through a queue that is so slow and short that it drops many packets."""
        _run(
            "tc",
            "-n",
            self._names[host],
            *["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "4mbit", "burst", "3kb", "limit", "6kb"],
        )

    def widen(self, host: str) -> int:
        """Remove the queue; returns how many packets it has dropped."""
        shown = _run("tc", "-n", self._names[host], "-s", "-j", "qdisc", "show", "dev", "eth0")
        _run("tc", "-n", self._names[host], *["qdisc", "del", "dev", "eth0", "root"])
        return int(json.loads(shown)[0]["drops"])

    def create(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, *["link", "add", "br0", "type", "bridge"])
        _run("ip", "-n", self._switch, *["link", "set", "br0", "up"])
        for number, (host, name) in enumerate(self._names.items()):
            _run("ip", "netns", "add", name)
            port = f"port{number}"
            _run("ip", "-n", self._switch, *f"link add {port} type veth peer name eth0 netns {name}".split())
            _run("ip", "-n", self._switch, *f"link set {port} master br0 up".split())
            _run("ip", "-n", name, *f"addr add {self.addresses[host]}/24 dev eth0".split())
            for device in ("eth0", "lo"):
                _run("ip", "-n", name, "link", "set", device, "up")

    def remove(self) -> None:
        """Also what `create` left unfinished. Links end with their namespaces."""
        for name in (*self._names.values(), self._switch):
            if Path("/run/netns", name).exists():
                _run("ip", "netns", "del", name)


@contextmanager
def network(hosts: Sequence[str]) -> Iterator[Network]:
    """Removed at the end of the block. Raises CalledProcessError if this process may not create one."""
    made = Network(hosts)
    try:
        made.create()
        yield made
    finally:
        made.remove()


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
