"""Both ends of a SASL exchange in one thread."""

from __future__ import annotations

from raylog.security.sasl.mechanism import Check, SaslClient, SaslServer


def exchange(client: SaslClient, server: SaslServer, *, steps_max: int = 10) -> list[bytes]:
    """Run it to its end, and return what the server has sent. Raises KafkaError from the end that refuses."""
    sent = []
    message: bytes | None = client.first_message
    for _ in range(steps_max):
        assert message is not None
        sent.append(reply(server, message))
        message = client.respond(sent[-1])
        if message is None:
            return sent
    raise AssertionError("the exchange does not end")


def reply(server: SaslServer, message: bytes) -> bytes:
    """The server's next message, after its check if there is one."""
    answer = server.respond(message)
    while isinstance(answer, Check):
        answer = answer.then(answer.run())
    return answer or b""
