"""A session over actor calls sends whole frames, keeps the order of responses, and reports its end once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.handle_door import HandleTransport, NodeDoor
from raylog.core.errors import ErrorCode, KafkaError

SESSION = "session"


class Call:
    """The reference that a call returns, and its result, which the test sets."""

    def __init__(self) -> None:
        self.result: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.result


class Method:
    """Notes each call with its arguments; `begin` may answer or fail at once."""

    def __init__(self, begin: Callable[[Call], None] = lambda call: None) -> None:
        self.begin = begin
        self.given: list[tuple[Any, ...]] = []
        self.calls: list[Call] = []

    def remote(self, *arguments: Any, **named: Any) -> Call:
        call = Call()
        self.begin(call)
        self.given.append(arguments or tuple(named.items()))
        self.calls.append(call)
        return call


class Broker:
    def __init__(self) -> None:
        self.open_session = Method(lambda call: call.result.set_result(SESSION))
        self.request, self.close_session = Method(), Method()

    @property
    def frames(self) -> list[bytes]:
        assert {session for session, _ in self.request.given} <= {SESSION}
        return [frame for _, frame in self.request.given]


class Client(asyncio.BufferedProtocol):
    """Has a buffer of a fixed size, whatever is asked for."""

    def __init__(self, room: int) -> None:
        self.buffer = bytearray(room)
        self.received = b""
        self.losses: list[Exception | None] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.losses.append(exc)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def in_session(check: Callable[[Broker, Client, HandleTransport], Any], *, room: int = 64) -> None:
    """Runs `check` with an open session, lets the event loop finish, and runs the function that it returned."""

    async def run() -> None:
        broker, client = Broker(), Client(room)
        transport = await NodeDoor({"broker-0": broker}).open("broker-0", 1, None)
        transport.start(client)
        assert broker.open_session.given == [(("internal", True),)]
        later = check(broker, client, transport)
        await events_are_handled()
        later()
        transport.abort()
        await events_are_handled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


async def events_are_handled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.data())
def test_frames_are_cut_from_pieces_of_any_size(frames: list[bytes], data: st.DataObject) -> None:
    def check(broker: Broker, client: Client, transport: HandleTransport) -> Callable[[], None]:
        stream = b"".join(map(framed, frames))
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            transport.write(stream[:size])
            stream = stream[size:]
        assert broker.frames == frames
        return lambda: None

    in_session(check)


@pytest.mark.parametrize("room", [1, 3, 64])
def test_responses_come_in_the_order_of_the_requests(room: int) -> None:
    """The second call ends first, and the third has no response. The client takes what its buffer has room for."""

    def check(broker: Broker, client: Client, transport: HandleTransport) -> Callable[[], None]:
        transport.writelines([framed(b"a") + framed(b"b"), framed(b"no response"), framed(b"c")])
        for number, response in ((1, b"second"), (2, b""), (0, b"first"), (3, b"fourth")):
            broker.request.calls[number].result.set_result(response)

        def later() -> None:
            assert client.received == framed(b"first") + framed(b"second") + framed(b"fourth")
            assert client.losses == []

        return later

    in_session(check, room=room)


def test_a_call_that_fails_ends_the_session() -> None:
    def check(broker: Broker, client: Client, transport: HandleTransport) -> Callable[[], None]:
        transport.writelines([framed(b"a"), framed(b"b")])
        broker.request.calls[1].result.set_result(b"never read")
        refused = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the session does not exist")
        broker.request.calls[0].result.set_exception(refused)

        def later() -> None:
            [loss] = client.losses
            assert isinstance(loss, ConnectionResetError)
            assert "the session does not exist" in str(loss)
            assert (client.received, transport.is_closing(), broker.close_session.given) == (b"", True, [(SESSION,)])
            transport.write(framed(b"c"))
            assert broker.frames == [b"a", b"b"]

        return later

    in_session(check)


def test_a_client_that_closes_is_told_once_and_gets_nothing_more() -> None:
    def check(broker: Broker, client: Client, transport: HandleTransport) -> Callable[[], None]:
        transport.write(framed(b"a"))
        transport.close()
        transport.abort()
        broker.request.calls[0].result.set_result(b"too late")

        def later() -> None:
            assert (client.losses, client.received, broker.close_session.given) == ([None], b"", [(SESSION,)])

        return later

    in_session(check)


def test_a_process_that_has_left_its_ray_loses_the_session() -> None:
    def left(call: Call) -> None:
        raise RuntimeError("Ray is not initialized")

    def check(broker: Broker, client: Client, transport: HandleTransport) -> Callable[[], None]:
        broker.request.begin = broker.close_session.begin = left
        transport.writelines([framed(b"a"), framed(b"b")])

        def later() -> None:
            [loss] = client.losses
            assert isinstance(loss, ConnectionResetError)
            assert "not initialized" in str(loss)

        return later

    in_session(check)


def test_a_broker_without_a_process_and_one_that_refuses() -> None:
    async def run() -> None:
        broker = Broker()
        door = NodeDoor({"broker-0": broker})
        with pytest.raises(OSError, match="broker-1 has no process"):
            await door.open("broker-0", 1, 1)
        stopping = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is stopping")
        broker.open_session.begin = lambda call: call.result.set_exception(stopping)
        with pytest.raises(OSError, match=r"cannot reach the actor broker-0: .*the broker is stopping"):
            await door.open("broker-0", 1, None)

    asyncio.run(run())
