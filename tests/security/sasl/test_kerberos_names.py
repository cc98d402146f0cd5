"""Short names of Kerberos principals: the examples of Kafka's tests and documentation, and of MIT's auth_to_local."""

from __future__ import annotations

import pytest

from raylog.core.errors import ConfigError
from raylog.security.sasl.kerberos_names import NoShortName, ShortNames
from tests.support.forms import by_form
from tests.support.mutations import mutations

REALM = "REALM.COM"


def short_name(principal: str, *rules: str, default_realm: str = REALM) -> str:
    return ShortNames(rules, default_realm=default_realm).of(principal)


class TestKafka:
    """KerberosNameTest, and the example of the section on authorization."""

    RULES = (
        r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
        "DEFAULT",
    )
    LOWER = (
        "RULE:[1:$1]/L",
        "RULE:[2:$1](Test.*)s/ABC///L",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
        "RULE:[2:$1]/L",
        "DEFAULT",
    )
    UPPER = tuple(rule.replace("/L", "/U") for rule in LOWER)

    @pytest.mark.parametrize(
        ("principal", "expected"),
        [
            ("App.service-name/example.com@REALM.COM", "service-name"),
            ("App.service-name@REALM.COM", "service-name"),
            ("user/host@REALM.COM", "user"),
        ],
    )
    def test_parse(self, principal: str, expected: str) -> None:
        assert short_name(principal, *self.RULES) == expected

    @pytest.mark.parametrize(
        ("principal", "expected"),
        [
            ("User@REALM.COM", "user"),
            ("TestABC/host@FOO.COM", "test"),
            ("ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
            ("App.SERVICE-name/example.com@REALM.COM", "service-name"),
            ("User/root@REALM.COM", "user"),
        ],
    )
    def test_case(self, principal: str, expected: str) -> None:
        assert short_name(principal, *self.LOWER) == expected
        if "ABC" not in principal:
            assert short_name(principal, *self.UPPER) == expected.upper()

    def test_the_example_of_the_documentation(self) -> None:
        assert short_name("user@MYDOMAIN.COM", "RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "DEFAULT") == "user"

    @pytest.mark.parametrize(
        "rule",
        [
            "default",
            "DEFAUL",
            "DEFAULT/L",
            "DEFAULT/g",
            "rule:[1:$1]",
            "rule:[1:$1]/L/U",
            "rule:[1:$1]/L",
            "RULE:[1:$1]/LU",
            "RULE:[1:$1]L/U",
            "RULE:[1:$1]/l",
            "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
            "RULE:[:$1]",
            "RULE:[1:$1",
            "RULE:[1:$2]",
            "RULE:[1:$]",
            "RULE:[1:$1]([)",
            "RULE:[1:$1]s/(/x/",
            "RULE:[1:$1]s/a/$1/",
            "RULE:[1:$1]s/a/$/",
            "RULE:[1:$1]s/a/b\\/",
            "",
        ],
    )
    def test_invalid_rules(self, rule: str) -> None:
        with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules="):
            short_name("user@REALM.COM", rule)


class TestMit:
    """auth_to_local in the documentation of krb5.conf."""

    RULES = (
        "RULE:[2:$1](johndoe)s/^.*$/guest/",
        "RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
        "RULE:[2:$2](^.*;operator)s/^.*$/operator/",
        "DEFAULT",
    )

    @pytest.mark.parametrize(
        ("principal", "expected"),
        [
            ("johndoe/anything@ANYWHERE", "guest"),
            ("alice/admin@ANYWHERE", "alice"),
            ("alice@REALM.COM", "alice"),
        ],
    )
    def test_examples(self, principal: str, expected: str) -> None:
        assert short_name(principal, *self.RULES) == expected

    def test_a_name_to_which_no_rule_applies(self) -> None:
        with pytest.raises(NoShortName, match="no rule applies"):
            short_name("alice@ELSEWHERE", *self.RULES)


def test_a_rule_applies_only_if_its_expression_matches_the_whole() -> None:
    assert short_name("alice@R", "RULE:[1:$1](lic)s/.*/operator/", "RULE:[1:$1](a.*)") == "alice"


def test_without_rules_the_default_realm_is_mapped() -> None:
    assert short_name("alice@REALM.COM") == "alice"
    with pytest.raises(NoShortName):
        short_name("alice@OTHER.COM")


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [("$2-$1", "b-a"), ("$0$0", "ab;ab;"), (r"\$1\\", "$1\\"), ("$11", "a1"), ("", "")],
)
def test_replacements_are_those_of_java(replacement: str, expected: str) -> None:
    rule = f"RULE:[1:$1;]s/(a)(b);/{replacement}./"
    assert short_name("ab@R", rule) == f"{expected}."


@pytest.mark.parametrize(
    "principal",
    ["", "alice", "@R", "alice@", "alice/@R", "/h@R", "a/b/c@R", "a@b@R", r"a\@b@R", "a\n@R@R", "alice@R/x"],
)
def test_what_is_no_principal_has_no_name(principal: str) -> None:
    with pytest.raises(NoShortName):
        short_name(principal, "RULE:[1:$1]", "RULE:[2:$1]", default_realm="R")


@pytest.mark.parametrize("rule", ["RULE:[1:$1@$0]", "RULE:[2:$1/$2]", "RULE:[1:$1]s/.*//", "RULE:[1:]"])
def test_a_result_that_is_not_simple_is_refused(rule: str) -> None:
    """Later rules are not tried, as in Kafka."""
    with pytest.raises(NoShortName, match="no short name"):
        short_name("alice/host@R" if "[2" in rule else "alice@R", rule, "DEFAULT", default_realm="R")


def test_mutated_principals_get_simple_names_or_none() -> None:
    names = ShortNames((*TestKafka.RULES, *TestMit.RULES), default_realm=REALM)
    for mutation in mutations(b"alice/admin@REALM.COM", by_form(500, quick=200, long=20_000), "principal"):
        try:
            name = names.of(mutation.decode("latin-1"))
        except NoShortName:
            continue
        assert name
        assert not set(name) & set("/@")
