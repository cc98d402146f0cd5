"""TLS contexts are made from every kind of store that Kafka's keys can name, and what is wrong is named by its key."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from raylog.config.table import broker_configs
from raylog.config.tls import listener_tls_settings, tls_settings
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.security.tls import client_context, server_context
from tests.support.certificates import STORE_PASSWORD, Certificates

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "keytool"
PEM = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    certificates = Certificates.new(tmp_path_factory.mktemp("certificates"))
    certificates.issue("broker", "localhost", "127.0.0.1", "::1")
    certificates.issue("alice", unit="Users")
    certificates.pkcs12("broker")
    return certificates


def server(config: dict[str, Any]) -> ssl.SSLContext:
    return server_context(tls_settings(broker_configs(config).for_listener("PLAINTEXT")))


def client(certificates: Certificates, *, name: str | None = None) -> ssl.SSLContext:
    config: dict[str, Any] = {**PEM, "ssl.truststore.location": certificates.trusted}
    if name is not None:
        config["ssl.keystore.location"] = certificates.folder / f"{name}.pem"
    return client_context(tls_settings(broker_configs(config).for_listener("PLAINTEXT")), check_host_name=True)


def shake_hands(
    of_server: ssl.SSLContext, of_client: ssl.SSLContext, *, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection. Raises ssl.SSLError from the end that refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = of_server.wrap_bio(up, down, server_side=True)
    ours = of_client.wrap_bio(down, up, server_hostname=host)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ours.write(b"hello")
    assert theirs.read(5) == b"hello"
    return theirs, ours


def inline(certificates: Certificates, **changed: Any) -> dict[str, Any]:
    return {
        **PEM,
        "ssl.keystore.key": Password((certificates.folder / "broker.key").read_text()),
        "ssl.keystore.certificate.chain": (certificates.folder / "broker.crt").read_text(),
        **changed,
    }


def encrypted_key(certificates: Certificates) -> str:
    key = load_pem_private_key((certificates.folder / "broker.key").read_bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"of the key")).decode()


class TestStores:
    def test_a_pem_file(self, made: Certificates) -> None:
        shake_hands(server({**PEM, "ssl.keystore.location": made.folder / "broker.pem"}), client(made))

    def test_pem_texts(self, made: Certificates) -> None:
        shake_hands(server(inline(made)), client(made))

    def test_an_encrypted_key(self, made: Certificates) -> None:
        config = inline(made, **{"ssl.keystore.key": encrypted_key(made), "ssl.key.password": "of the key"})
        shake_hands(server(config), client(made))
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.key: no private key .* that ssl\.key\.password opens"):
            server({**config, "ssl.key.password": "another"})
        with pytest.raises(ConfigError, match=r"keystore\.key: .* is encrypted, and ssl\.key\.password is not set"):
            server(inline(made, **{"ssl.keystore.key": encrypted_key(made)}))

    def test_a_password_for_a_key_that_is_not_encrypted(self, made: Certificates) -> None:
        with pytest.raises(ConfigError, match=r"keystore\.key: .* is not encrypted: remove ssl\.key\.password"):
            server(inline(made, **{"ssl.key.password": "of the key"}))

    @pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
    def test_a_pkcs12_file(self, made: Certificates, kind: str) -> None:
        """With the type JKS too, as Java reads it."""
        config = {"ssl.keystore.type": kind, "ssl.keystore.location": made.folder / "broker.p12"}
        shake_hands(server({**config, "ssl.keystore.password": STORE_PASSWORD}), client(made))
        with pytest.raises(ConfigError, match=r"no PKCS12 file that ssl\.keystore\.password opens") as refused:
            server({**config, "ssl.keystore.password": "hunter2"})
        assert "hunter2" not in refused.value.message

    def test_a_jks_file_is_refused_with_the_command_that_converts_it(self, tmp_path: Path) -> None:
        path = tmp_path / "broker.jks"
        path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\x02")
        with pytest.raises(ConfigError, match=r"keytool -importkeystore -srckeystore .*broker.jks .*broker.p12"):
            server({"ssl.keystore.location": path})

    def test_a_trust_store_that_keytool_has_made(self, made: Certificates) -> None:
        """keytool -importcert -file authority.pem -keystore truststore.p12 -storetype PKCS12"""
        config = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": made.folder / "broker.pem",
            "ssl.truststore.location": GOLDEN / "truststore.p12",
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.client.auth": "required",
        }
        [trusted] = server(config).get_ca_certs(binary_form=True)
        assert ssl.DER_cert_to_PEM_cert(trusted) == (GOLDEN / "authority.pem").read_text()

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"ssl.keystore.location": ""}, r"ssl\.keystore\.location: must be set for a listener with TLS"),
            ({"ssl.keystore.location": "/no/such/file"}, "No such file"),
            ({"ssl.keystore.location": "/"}, "Is a directory"),
            ({"ssl.keystore.location": "/dev/zero"}, "is larger than"),
            ({"ssl.keystore.location": "/dev/null"}, "no private key in PEM format"),
            ({"ssl.keystore.key": "hunter2"}, "exclude each other"),
            ({"ssl.client.auth": "required"}, r"ssl\.truststore\.location: must be set"),
            ({"ssl.client.auth": "required", "ssl.truststore.location": "/dev/null"}, "no certificate in PEM format"),
            ({"ssl.client.auth": "required", "ssl.truststore.certificates": "x"}, "no certificate in PEM format"),
            ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "those of TLS 1.3 are used all together"),
            ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "is unknown, or too weak"),
            ({"ssl.cipher.suites": "ALL:@SECLEVEL=0"}, "is unknown, or too weak"),
            (
                {
                    "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
                    "ssl.enabled.protocols": "TLSv1.3",
                },
                "none of them can be used with ssl.enabled.protocols",
            ),
        ],
    )
    def test_what_cannot_be_used(self, made: Certificates, changed: dict[str, str], reason: str) -> None:
        with pytest.raises(ConfigError, match=reason) as refused:
            server({**PEM, "ssl.keystore.location": made.folder / "broker.pem", **changed})
        assert "hunter2" not in refused.value.message

    def test_a_key_of_another_certificate(self, made: Certificates) -> None:
        other = (made.folder / "alice.crt").read_text()
        with pytest.raises(ConfigError, match="the private key does not belong to the certificate"):
            server(inline(made, **{"ssl.keystore.certificate.chain": other}))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("ssl.enabled.protocols", "TLSv1.1"),
            ("ssl.enabled.protocols", "SSLv3,TLSv1.3"),
            ("ssl.enabled.protocols", ""),
            ("ssl.client.auth", "maybe"),
            ("ssl.keystore.type", "DER"),
        ],
    )
    def test_values_that_the_configuration_refuses(self, key: str, value: str) -> None:
        with pytest.raises(ConfigError, match=key):
            broker_configs({key: value})


class TestHandshakes:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
    def test_the_host_name_is_checked(self, made: Certificates, host: str) -> None:
        ours = server(inline(made))
        shake_hands(ours, client(made), host=host)
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(ours, client(made), host="broker.example")

    def test_an_authority_that_the_client_does_not_know(self, made: Certificates, tmp_path: Path) -> None:
        others = Certificates.new(tmp_path / "others")
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server(inline(made)), client(others))

    @pytest.mark.parametrize(("mode", "without"), [("required", False), ("requested", True), ("none", True)])
    def test_certificates_of_clients(self, made: Certificates, mode: str, without: bool) -> None:
        ours = server(inline(made, **{"ssl.client.auth": mode, "ssl.truststore.location": str(made.trusted)}))
        theirs, _ = shake_hands(ours, client(made, name="alice"))
        assert bool(theirs.getpeercert(binary_form=True)) is (mode != "none")
        if without:
            shake_hands(ours, client(made))
        else:
            with pytest.raises(ssl.SSLError):
                shake_hands(ours, client(made))

    @pytest.mark.parametrize(("server_has", "client_has"), [("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
    def test_versions_that_do_not_meet(self, made: Certificates, server_has: str, client_has: str) -> None:
        ours, theirs = server(inline(made, **{"ssl.enabled.protocols": server_has})), client(made)
        shake_hands(ours, theirs)
        theirs.minimum_version = theirs.maximum_version = ssl.TLSVersion[client_has.replace(".", "_")]
        with pytest.raises(ssl.SSLError):
            shake_hands(ours, theirs)

    @pytest.mark.parametrize(
        ("suite", "expected"),
        [
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
            ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ],
    )
    def test_a_chosen_cipher_suite(self, made: Certificates, suite: str, expected: str) -> None:
        theirs, _ = shake_hands(server(inline(made, **{"ssl.cipher.suites": suite})), client(made))
        cipher = theirs.cipher()
        assert cipher is not None
        assert cipher[:2] == (expected, "TLSv1.2")

    def test_settings_of_one_listener(self, made: Certificates) -> None:
        configs = broker_configs(
            {
                "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
                "listener.security.protocol.map": "A:SSL,B:SSL",
                **inline(made),
                "listener.name.a.ssl.client.auth": "required",
                "listener.name.a.ssl.truststore.location": str(made.trusted),
            }
        )
        for name, expected in (("A", ssl.CERT_REQUIRED), ("B", ssl.CERT_NONE)):
            assert server_context(listener_tls_settings(configs, name, by_sasl=False)).verify_mode is expected

    def test_a_listener_with_sasl_asks_for_certificates_by_its_own_key_only(self) -> None:
        """As in Kafka (KIP-684)."""
        configs = broker_configs(
            {
                "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
                "listener.security.protocol.map": "A:SASL_SSL,B:SASL_SSL",
                "ssl.client.auth": "required",
                "listener.name.b.ssl.client.auth": "requested",
            }
        )
        assert listener_tls_settings(configs, "A", by_sasl=True).client_auth == "none"
        assert listener_tls_settings(configs, "B", by_sasl=True).client_auth == "requested"


def test_settings_show_no_secret(made: Certificates) -> None:
    settings = tls_settings(broker_configs(inline(made)))
    assert "PRIVATE KEY" in (settings.keys.key or Password("")).reveal()
    assert "PRIVATE KEY" not in repr(replace(settings))
