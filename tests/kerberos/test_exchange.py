"""GSSAPI with a real KDC: whose tickets are accepted, changed keys, replayed and damaged messages."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from raylog.core.errors import ConfigError, KafkaError
from raylog.security.principal import Principal
from raylog.security.sasl.gssapi import GssapiClient, GssapiServer
from raylog.security.sasl.jaas import JaasEntry
from raylog.security.sasl.kerberos import LOGIN_MODULE, Acceptor, initiator
from raylog.security.sasl.kerberos_names import ShortNames
from tests.security.sasl.exchanges import exchange
from tests.security.sasl.test_gssapi import respond
from tests.support.forms import by_form
from tests.support.kerberos_realm import REALM, SERVICE, Realm
from tests.support.mutations import mutations

pytestmark = pytest.mark.kerberos


@pytest.fixture
def acceptor(service_keytab: Path) -> Acceptor:
    return Acceptor(f"{SERVICE}@{REALM}", str(service_keytab))


def server(acceptor: Acceptor, *rules: str) -> GssapiServer:
    return GssapiServer(acceptor.new_context, ShortNames(rules, default_realm=acceptor.default_realm))


def client(keytab: Path, principal: str = "alice", *, host: str = "localhost") -> GssapiClient:
    entry = JaasEntry(LOGIN_MODULE, {"keyTab": str(keytab), "principal": principal, "useKeyTab": "true"})
    return GssapiClient(initiator("kafka", host, entry))


def test_a_client_with_a_keytab(acceptor: Acceptor, alice_keytab: Path) -> None:
    ours = server(acceptor)
    exchange(client(alice_keytab), ours)
    assert ours.identity is not None
    assert ours.identity.principal == Principal("User", "alice")
    assert acceptor.default_realm == REALM


def test_a_client_with_the_ticket_of_kinit(acceptor: Acceptor, realm: Realm, alice_keytab: Path) -> None:
    realm.kinit("alice", alice_keytab)
    try:
        ours = server(acceptor)
        exchange(GssapiClient(initiator("kafka", "localhost")), ours)
        assert ours.identity is not None
    finally:
        realm.kdestroy()


def test_rules_decide_the_name(acceptor: Acceptor, realm: Realm) -> None:
    keytab = realm.keytab("carol/admin")
    ours = server(acceptor, "RULE:[2:$1;$2](.*;admin)s/;admin/_admin/U")
    exchange(client(keytab, "carol/admin"), ours)
    assert ours.identity is not None
    assert ours.identity.principal == Principal("User", "CAROL_ADMIN")
    with pytest.raises(KafkaError):
        exchange(client(keytab, "carol/admin"), server(acceptor, "RULE:[1:$1]"))


def test_clients_of_several_principals_in_one_process(acceptor: Acceptor, realm: Realm, alice_keytab: Path) -> None:
    keytabs = {"alice": alice_keytab, "bob": realm.keytab("bob")}
    for user in ("alice", "bob", "alice"):
        ours = server(acceptor)
        exchange(client(keytabs[user], user), ours)
        assert ours.identity is not None
        assert ours.identity.principal.name == user


def test_without_a_ticket_there_is_no_exchange(realm: Realm) -> None:
    realm.kdestroy()
    with pytest.raises(KafkaError, match="no Kerberos authentication"):
        GssapiClient(initiator("kafka", "localhost"))


def test_a_wrong_key_of_the_client_is_refused_by_the_kdc(realm: Realm) -> None:
    old = realm.keytab("dave")
    realm.keytab("dave")
    with pytest.raises(KafkaError, match="no Kerberos authentication"):
        client(old, "dave")


def test_a_ticket_for_another_service_is_refused(acceptor: Acceptor, realm: Realm, alice_keytab: Path) -> None:
    realm.keytab("kafka/elsewhere")
    ours = server(acceptor)
    with pytest.raises(KafkaError, match="invalid credentials"):
        respond(ours, client(alice_keytab, host="elsewhere").first_message)
    assert ours.identity is None


def test_a_changed_key_is_read_from_the_keytab(realm: Realm, alice_keytab: Path) -> None:
    principal = "kafka/changed"
    keytab = realm.keytab(principal)
    acceptor = Acceptor(f"{principal}@{REALM}", str(keytab))
    newer = realm.keytab(principal)
    with pytest.raises(KafkaError):
        exchange(client(alice_keytab, host="changed"), server(acceptor))
    keytab.write_bytes(newer.read_bytes())
    exchange(client(alice_keytab, host="changed"), server(acceptor))


def test_a_false_server_is_refused(realm: Realm, alice_keytab: Path) -> None:
    """Its answer does not prove that it could read the ticket."""
    ours = client(alice_keytab)
    with pytest.raises(KafkaError):
        ours.respond(ours.first_message)


def test_a_replayed_message_is_refused(acceptor: Acceptor, alice_keytab: Path) -> None:
    recorded = client(alice_keytab).first_message
    respond(server(acceptor), recorded)
    ours = server(acceptor)
    with pytest.raises(KafkaError):
        respond(ours, recorded)
    assert ours.identity is None


def test_mutated_messages_authenticate_nobody(acceptor: Acceptor, alice_keytab: Path) -> None:
    first = client(alice_keytab).first_message
    for mutation in mutations(first, by_form(300, quick=100, long=10_000), "ticket"):
        ours = server(acceptor)
        with suppress(KafkaError):
            respond(ours, mutation)
        assert ours.identity is None
    for seed in range(by_form(30, quick=10, long=300)):
        theirs = client(alice_keytab)
        opened = server(acceptor)
        theirs.respond(respond(opened, theirs.first_message) or b"")
        choice = theirs.respond(respond(opened, b"") or b"")
        assert choice is not None
        (mutation,) = mutations(choice, 1, seed)
        with pytest.raises(KafkaError):
            respond(opened, mutation)
        assert opened.identity is None


def test_a_keytab_that_cannot_be_used(realm: Realm, service_keytab: Path, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"no keytab")
    for principal, keytab in (
        (f"{SERVICE}@{REALM}", tmp_path / "none"),
        (f"{SERVICE}@{REALM}", tmp_path / "garbage"),
        (f"kafka/other@{REALM}", service_keytab),
    ):
        with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: the keytab of kafka/\w+@RAYLOG.TEST"):
            Acceptor(principal, str(keytab))
