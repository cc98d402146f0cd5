"""Both ends of a SASL exchange in one thread."""

from __future__ import annotations

from raylog.security.sasl.mechanism import Check, SaslClient, SaslServer


def exchange(client: SaslClient, server: SaslServer, *, steps_max: int = 10) -> list[bytes]:
    """Run it to its end, and return what the server has sent. Raises KafkaError from the end that refuses."""
    sent = []
    message: bytes | None = client.first_message
    for _ in range(steps_max):
        assert message is not None
        answer = server.respond(message)
        while isinstance(answer, Check):
            answer = answer.then(answer.run())
        sent.append(answer or b"")
        message = client.respond(answer or b"")
        if message is None:
            return sent
    raise AssertionError("the exchange does not end")
