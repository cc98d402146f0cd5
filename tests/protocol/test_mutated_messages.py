"""Mutations of valid messages are read or refused with ProtocolViolation, with memory in proportion to their size."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from raylog.core.errors import KafkaError, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.header import decode_request_header, decode_response_header, encode_request_header
from raylog.protocol.registry import APIS, INTERNAL_APIS
from raylog.protocol.schema import Message
from raylog.security.cluster_secret import NONCE_BYTES, SecretProver, SecretVerifier
from raylog.security.principal import CLUSTER_PRINCIPAL, decode_host, decode_principal, encode_host, encode_principal
from tests.hostile.requests import Drawing
from tests.hostile.responses import Learned
from tests.protocol.messages import versions
from tests.support.forms import by_form
from tests.support.mutations import mutations

SPECS = (*APIS, *INTERNAL_APIS)
CLASSES: list[type[Message]] = [cls for spec in SPECS for cls in (spec.request, spec.response)]
BODIES = by_form(4, quick=1, long=200)
"""Of each message in each version."""
MUTATIONS = 12
"""Of each body."""
MEMORY_PER_BYTE = 400
MEMORY_BYTES_MIN = 100_000


def bodies(cls: type[Message]) -> Iterator[tuple[int, bytes]]:
    """(version, body) of valid messages."""
    for version in versions(cls):
        for number in range(BODIES):
            draw = Drawing(Random(f"{cls.__name__} {version} {number}"), Learned(), lambda: 0)
            yield version, draw.body(cls, version)


@pytest.mark.parametrize("cls", CLASSES)
def test_valid_messages_are_read_and_written_again(cls: type[Message]) -> None:
    for version, body in bodies(cls):
        message = codec.decode(cls, version, memoryview(body))
        again = codec.encode(message, version)
        assert codec.encode(codec.decode(cls, version, memoryview(again)), version) == again  # NaN is equal to nothing


@pytest.mark.parametrize("cls", CLASSES)
def test_mutated_messages_are_read_or_refused(cls: type[Message]) -> None:
    for version in versions(cls):
        codec.reader(cls, version)  # is compiled outside the measurement
    tracemalloc.start()
    try:
        for version, body in bodies(cls):
            for mutation in mutations(body, MUTATIONS, body) if body else ():
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                try:
                    message = codec.decode(cls, version, memoryview(mutation))
                except ProtocolViolation:
                    continue
                finally:
                    _, peak = tracemalloc.get_traced_memory()
                    assert peak - before < MEMORY_BYTES_MIN + MEMORY_PER_BYTE * len(mutation)
                codec.encode(message, version)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_mutated_headers_are_read_or_refused(spec: Any) -> None:
    for version in range(spec.lowest, spec.highest + 1):
        for header in mutations(encode_request_header(spec.key, version, 1, "client"), 50, spec.name):
            for read in (decode_request_header, partial(decode_response_header, spec.key, version)):
                try:
                    read(header)
                except ProtocolViolation:
                    pass


def test_mutated_principals_and_hosts_are_read_or_refused() -> None:
    for mutation in mutations(encode_principal(CLUSTER_PRINCIPAL), 2000, "principal"):
        try:
            principal, by_token = decode_principal(mutation)
            assert all(isinstance(part, str) for part in principal)
            assert isinstance(by_token, bool)
        except KafkaError:
            pass
    for mutation in mutations(encode_host("::1") + encode_host("name"), 2000, "host"):
        try:
            decode_host(mutation)
        except KafkaError:
            pass


def test_mutated_proofs_of_the_cluster_secret_are_refused() -> None:
    def verifier() -> SecretVerifier:
        return SecretVerifier(b"s" * 32, b"v" * NONCE_BYTES)

    def prover() -> SecretProver:
        return SecretProver(b"s" * 32, b"c" * NONCE_BYTES)

    first_message = prover().first_message
    challenge = verifier().respond(first_message)
    proof = prover().respond(challenge)
    assert proof is not None
    for mutation in mutations(challenge, 500, "challenge"):
        with pytest.raises(KafkaError):
            prover().respond(mutation)
    for mutation in mutations(proof, 500, "proof"):
        honest = verifier()
        honest.respond(first_message)
        with pytest.raises(KafkaError):
            honest.respond(mutation)
        assert honest.identity is None
