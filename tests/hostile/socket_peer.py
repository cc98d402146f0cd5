"""Carries out the steps of a hostile peer over TCP."""

from __future__ import annotations

import socket
import time
from collections import deque

from tests.hostile.requests import Ending, Step
from tests.hostile.responses import Learned, Responses

ANSWER_SECONDS = 0.3
"""How long a response is awaited: JoinGroup, or Fetch with an absurd max_wait_ms, may not have one for minutes."""
SILENT_MAX = 20


class SocketPeer:
    """Opens one connection for each step; a context manager."""

    def __init__(self, port: int, learned: Learned) -> None:
        self.answered = 0
        """Steps all of whose responses arrived."""
        self._port = port
        self._learned = learned
        self._silent: deque[socket.socket] = deque()

    def __enter__(self) -> SocketPeer:
        return self

    def __exit__(self, *_: object) -> None:
        while self._silent:
            self._silent.popleft().close()

    def carry_out(self, step: Step, written: list[bytes]) -> None:
        """Appends to `written` what was sent. Raises AssertionError or ProtocolViolation for an invalid response."""
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=5)
        responses = Responses(self._learned)
        try:
            for data in step.writes:
                written.append(data)
                responses.sent(data)
                sock.sendall(data)
                if step.in_turn and not _read(sock, responses):
                    return
            if step.ending is Ending.READ:
                self.answered += _read(sock, responses)
        except (ConnectionError, TimeoutError):
            return  # the broker closed the connection, or takes no more requests before it can send responses
        finally:
            if step.ending is Ending.SILENCE:
                self._silent.append(sock)
                if len(self._silent) > SILENT_MAX:
                    self._silent.popleft().close()
            else:
                sock.close()


def _read(sock: socket.socket, responses: Responses) -> bool:
    """Read and check the responses. Whether all of them arrived."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while responses.awaited and (remaining := deadline - time.monotonic()) > 0:
        sock.settimeout(remaining)
        data = sock.recv(1 << 20)
        if not data:
            return False
        responses.received(data)
    sock.settimeout(5)
    return not responses.awaited
