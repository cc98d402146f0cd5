"""Names of clients are made from their certificates as Kafka makes them (RFC 2253, KIP-371)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from raylog.core.errors import ConfigError
from raylog.security.distinguished_name import MappingRules, distinguished_name
from tests.support.mutations import mutations

EMAIL = ObjectIdentifier("1.2.840.113549.1.9.1")
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*attributes: tuple[ObjectIdentifier, str]) -> bytes:
    name = x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    built = built.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    return built.not_valid_after(datetime(2036, 1, 1, tzinfo=UTC)).sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "kafka1")],
            "CN=kafka1,O=Org,C=DE",
        ),
        (
            [(NameOID.STATE_OR_PROVINCE_NAME, "s"), (NameOID.LOCALITY_NAME, "l"), (NameOID.USER_ID, "u")],
            "UID=u,L=l,ST=s",
        ),
        ([(NameOID.COMMON_NAME, 'a, b+c="d"\\<e>;')], 'CN=a\\, b\\+c\\=\\"d\\"\\\\\\<e\\>\\;'),
        ([(NameOID.COMMON_NAME, "#alice ")], "CN=\\#alice\\ "),
        ([(NameOID.COMMON_NAME, " alice")], "CN=\\ alice"),
        ([(NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "svc=billing")], "CN=svc\\=billing,O=Org"),
        ([(NameOID.COMMON_NAME, "a#b")], "CN=a\\#b"),
        ([(NameOID.COMMON_NAME, "two  ")], "CN=two\\ \\ "),
        ([(NameOID.COMMON_NAME, "  lead")], "CN=\\ \\ lead"),
        ([(NameOID.COMMON_NAME, "   ")], "CN=\\ \\ \\ "),
        ([(NameOID.COMMON_NAME, " #a  b= ")], "CN=\\ \\#a  b\\=\\ "),
        ([(NameOID.COMMON_NAME, " \r\na\n \r")], "CN=\\ \\\r\na\n\\ \\\r"),
        ([(NameOID.COMMON_NAME, "\0a\x01\t\x7f \0")], "CN=\\00a\x01\t\x7f \\00"),
        ([(NameOID.COMMON_NAME, "\N{NO-BREAK SPACE}\N{GRINNING FACE}")], "CN=\N{NO-BREAK SPACE}\N{GRINNING FACE}"),
        ([(NameOID.COMMON_NAME, "B\N{LATIN SMALL LETTER O WITH DIAERESIS}b")], "CN=Böb"),
        ([(EMAIL, "a@b"), (NameOID.COMMON_NAME, "alice")], "CN=alice,1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.SERIAL_NUMBER, "7" * 64)], "2.5.4.5=#1340" + "37" * 64),
    ],
)
def test_distinguished_names(attributes: list[tuple[ObjectIdentifier, str]], expected: str) -> None:
    assert distinguished_name(certificate(*attributes)) == expected


def test_a_relative_name_of_two_attributes() -> None:
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    name = x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o")]), both])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    built = built.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    made = built.not_valid_after(datetime(2036, 1, 1, tzinfo=UTC)).sign(KEY, hashes.SHA256())
    assert distinguished_name(made.public_bytes(Encoding.DER)) in ("CN=a+UID=b,O=o", "UID=b+CN=a,O=o")


KIP_371 = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=Alice,O=Org", "CN=Alice,O=Org"),
        (KIP_371, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        (KIP_371, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (KIP_371, "OU=x,CN=Duke", "duke"),
        (KIP_371, "UID=1", "UID=1"),
        ("RULE:^CN=(.*?)$/$1/U", "CN=alice", "ALICE"),
        ("RULE:^CN=(.*?)$/$1@\\$x\\//", "CN=alice", "alice@$x/"),
        ("RULE:^CN=a\\/b$/slash/", "CN=a/b", "slash"),
        (" RULE:^CN=(x)?y$/[$1]/ , DEFAULT ", "CN=y", "[]"),
        ("RULE:^CN=bob$/bob/", "CN=alice", None),
        ("RULE:CN=b/bob/", "CN=bob", None),
    ],
)
def test_mapping_rules(rules: str, name: str, expected: str | None) -> None:
    assert MappingRules(rules).name_of(name) == expected


@pytest.mark.parametrize(
    "rules", ["", "default", "RULE:^CN=(.*)$/$1", "RULE:(/x/", "RULE:^CN=(.*)$/$2/", "RULE:a/b/X", "DEFAULT x"]
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules(rules)


def test_damaged_certificates_raise_nothing_else() -> None:
    raw = certificate((NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "alice"))
    names = set()
    for mutation in mutations(raw, 500, "certificate"):
        try:
            names.add(distinguished_name(mutation))
        except ValueError:
            continue
    assert all(re.search("=", name) or not name for name in names)
