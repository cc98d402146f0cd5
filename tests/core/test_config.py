"""Configuration values are typed, checked and have a source; every error names key, value and rule."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.config import (
    SHOWN_CHARACTERS_MAX,
    ConfigKey,
    Configs,
    ConfigSchema,
    ConfigSource,
    ConfigType,
    Layer,
    at_least,
    between,
    one_of,
)
from raylog.core.errors import ConfigError
from raylog.core.password import Password

BOOLEAN = ConfigKey("boolean", ConfigType.BOOLEAN, False, "B.")
STRING: ConfigKey[str | None] = ConfigKey("string", ConfigType.STRING, None, "S.")
INT = ConfigKey("int", ConfigType.INT, 0, "I.", per_listener=True)
SHORT = ConfigKey("short", ConfigType.SHORT, 0, "S.")
LONG = ConfigKey("long", ConfigType.LONG, 0, "L.", coarser=((INT, 1000),))
DOUBLE = ConfigKey("double", ConfigType.DOUBLE, 0.0, "D.", per_listener=True)
LIST: ConfigKey[tuple[str, ...]] = ConfigKey("list", ConfigType.LIST, (), "L.")
PASSWORD: ConfigKey[Password | None] = ConfigKey(
    "the.password",
    ConfigType.PASSWORD,
    None,
    "P.",
    lambda value: None if len(value.reveal()) >= 8 else "must have at least 8 characters",
    per_listener=True,
)
SCHEMA = ConfigSchema((BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD))
SECRET = "hunter2!"


def configs(texts: dict[str, str | None]) -> Configs:
    return Configs(SCHEMA, [Layer(ConfigSource.STATIC_BROKER_CONFIG, SCHEMA.parse(texts))])


def error(texts: dict[str, str | None]) -> str:
    with pytest.raises(ConfigError) as refused:
        configs(texts)
    return refused.value.message


class TestStoredValues:
    """A text of the metadata log that a version with other rules stored never prevents a start."""

    SCHEMA = ConfigSchema(
        (
            INT,
            ConfigKey("low", ConfigType.INT, 20, "L.", at_least(10)),
            ConfigKey("both", ConfigType.INT, 20, "B.", between(10, 30)),
            ConfigKey("level", ConfigType.INT, -1, "L.", at_least(1, special=-1)),
            ConfigKey("word", ConfigType.STRING, "a", "W.", one_of("a", "b")),
        )
    )

    @pytest.mark.parametrize(
        ("name", "text", "restored"),
        [
            ("low", "11", 11),
            ("low", "9", 10),
            ("both", "9", 10),
            ("both", "31", 30),
            ("both", "many", None),
            ("level", "0", 1),
            ("level", "-1", -1),
            ("word", "c", None),
            ("int", str(1 << 40), None),
            ("unknown", "1", None),
            ("listener.name.X.int", "1", None),
        ],
    )
    def test_it_is_replaced_by_the_nearest_or_left_out(self, name: str, text: str, restored: int | None) -> None:
        assert self.SCHEMA.restore({name: text, "low": text if name == "low" else "15"}).get(name) == restored

    def test_each_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        stored = {"low": "-12345", "no.such.stored": "1"}
        for _ in range(3):
            self.SCHEMA.restore(stored)
        reasons = [(vars(each)["reason"], vars(each)["used"]) for each in caplog.records]
        assert reasons == [
            ("low='-12345': must be at least 10", 10),
            ("no.such.stored: unknown, or not supported by raylog", None),
        ]


class TestParsing:
    @pytest.mark.parametrize(
        ("key", "text", "value"),
        [
            (BOOLEAN, " TRUE ", True),
            (STRING, "", ""),
            (STRING, " a b\t", "a b"),
            (STRING, "東京", "東京"),
            (INT, "+7", 7),
            (INT, "-2147483648", -(1 << 31)),
            (INT, "0" * 10_000 + "7", 7),
            (SHORT, "32767", 32767),
            (LONG, "-0", 0),
            (DOUBLE, "-.5e2", -50.0),
            (DOUBLE, "1e-400", 0.0),
            (LIST, " a , ,b,", ("a", "b")),
            (LIST, ",,,", ()),
            (LIST, ",".join(["x"] * 100_000), ("x",) * 100_000),
        ],
    )
    def test_valid_values(self, key: ConfigKey[object], text: str, value: object) -> None:
        assert key.parse(text) == value

    @pytest.mark.parametrize(
        ("key", "text", "message"),
        [
            (BOOLEAN, "yes", "boolean='yes': must be true or false"),
            (BOOLEAN, "", "boolean='': must be true or false"),
            (BOOLEAN, "\uff54rue", "boolean='\uff54rue': must be true or false"),
            (STRING, "a\0b", r"string='a\x00b': must not contain NUL characters"),
            (LIST, "a,\0", r"list='a,\x00': must not contain NUL characters"),
            (INT, "many", "int='many': must be a whole number"),
            (INT, "", "int='': must be a whole number"),
            (INT, "1.0", "int='1.0': must be a whole number"),
            (INT, "0x10", "int='0x10': must be a whole number"),
            (INT, "1_000", "int='1_000': must be a whole number"),
            (INT, "١٢", "int='١٢': must be a whole number"),  # Arabic digits
            (INT, "\uff11", "int='\uff11': must be a whole number"),  # a full-width digit
            (INT, "²", "int='²': must be a whole number"),
            (INT, "--1", "int='--1': must be a whole number"),
            (INT, "2147483648", "int='2147483648': must be between -2147483648 and 2147483647"),
            (SHORT, "-32769", "short='-32769': must be between -32768 and 32767"),
            (LONG, str(1 << 63), f"long='{1 << 63}': must be between -{1 << 63} and {(1 << 63) - 1}"),
            (DOUBLE, "nan", "double='nan': must be a number"),
            (DOUBLE, "inf", "double='inf': must be a number"),
            (DOUBLE, "1e400", "double='1e400': must be a number"),
            (DOUBLE, "1_0", "double='1_0': must be a number"),
            (DOUBLE, "\uff11", "double='\uff11': must be a number"),
            (DOUBLE, ".", "double='.': must be a number"),
        ],
    )
    def test_invalid_values_are_named_with_their_rule(self, key: ConfigKey[object], text: str, message: str) -> None:
        with pytest.raises(ConfigError) as refused:
            key.parse(text)
        assert refused.value.message == message

    @pytest.mark.parametrize("key", [INT, SHORT, LONG, DOUBLE])
    @pytest.mark.parametrize("text", [str(10**400), "-" + "9" * 100_000, "9" * 5000], ids=["401", "100001", "5000"])
    def test_huge_numbers(self, key: ConfigKey[object], text: str) -> None:
        if key is DOUBLE and len(text) < 310:
            return
        with pytest.raises(ConfigError, match=r"\.\.\. \(\d+ characters\): must be "):
            key.parse(text)

    @pytest.mark.parametrize("key", [BOOLEAN, INT, SHORT, LONG, DOUBLE])
    def test_an_error_contains_a_bounded_part_of_the_value(self, key: ConfigKey[object]) -> None:
        with pytest.raises(ConfigError) as refused:
            key.parse("x" * 1_000_000)
        assert len(refused.value.message) < SHOWN_CHARACTERS_MAX + 150
        assert "(1000000 characters)" in refused.value.message

    @given(text=st.text())
    def test_any_text_is_a_value_or_a_config_error(self, text: str) -> None:
        for key in SCHEMA.keys.values():
            try:
                key.parse(text)
            except ConfigError as refused:
                assert refused.message.startswith(f"{key.name}=")  # noqa: PT017

    def test_checks(self) -> None:
        assert at_least(1)(0) == "must be at least 1"
        assert between(1, 3)(4) == "must be between 1 and 3"
        assert one_of("a", "b")("c") == "must be one of a, b"
        assert at_least(1)(1) is between(1, 3)(3) is one_of("a")("a") is None


class TestSchema:
    def test_unknown_keys_and_nulls(self) -> None:
        assert error({"no.such.key": "1"}) == "no.such.key: unknown, or not supported by raylog"
        assert error({"int": None}) == "int: must not be null"
        assert error({"": "1"}) == "'': unknown, or not supported by raylog"

    def test_an_unknown_key_does_not_show_its_value(self) -> None:
        assert SECRET not in error({"ssl.kezstore.password": SECRET})

    @pytest.mark.parametrize("name", ["a\nb", "a\0", "k" * 100_000, "\udc80"])
    def test_a_hostile_name_is_escaped_and_shortened(self, name: str) -> None:
        message = error({name: "1"})
        assert message.isprintable()
        assert len(message) < 200

    def test_a_key_cannot_be_declared_twice(self) -> None:
        with pytest.raises(AssertionError, match="int is declared twice"):
            ConfigSchema((INT, INT))


class TestSources:
    def test_the_first_layer_that_sets_a_key_wins(self) -> None:
        made = Configs(
            SCHEMA,
            [
                Layer(ConfigSource.DYNAMIC_BROKER_CONFIG, {"short": 1}),
                Layer(ConfigSource.STATIC_BROKER_CONFIG, {"short": 2, "int": 3}),
            ],
        )
        assert made.lookup(SHORT) == (1, ConfigSource.DYNAMIC_BROKER_CONFIG)
        assert made.lookup(INT) == (3, ConfigSource.STATIC_BROKER_CONFIG)
        assert made.lookup(DOUBLE) == (0.0, ConfigSource.DEFAULT_CONFIG)

    def test_a_coarser_key_is_used_if_the_exact_one_is_not_set(self) -> None:
        assert configs({"int": "2"})[LONG] == 2000
        assert configs({"int": "-1"})[LONG] == -1
        assert configs({"int": "2", "long": "5"})[LONG] == 5


class TestListenerOverrides:
    def test_an_override_applies_to_one_listener(self) -> None:
        made = configs({"int": "1", "listener.name.internal.int": "2", "listener.name.a_1.double": "0.5"})
        assert made[INT] == 1
        assert made.for_listener("INTERNAL")[INT] == 2
        assert made.for_listener("internal").lookup(INT) == (2, ConfigSource.STATIC_BROKER_CONFIG)
        assert made.for_listener("A_1")[INT] == 1
        assert made.for_listener("A_1")[DOUBLE] == 0.5
        assert made.for_listener("INTERNAL")[DOUBLE] == 0.0
        assert made.overrides(INT) == {"internal": 2}
        assert made.overrides(SHORT) == {}

    def test_an_override_takes_precedence_over_every_source_of_the_key(self) -> None:
        made = Configs(
            SCHEMA,
            [
                Layer(ConfigSource.DYNAMIC_BROKER_CONFIG, {"int": 1}),
                Layer(ConfigSource.STATIC_BROKER_CONFIG, {"listener.name.a.int": 2}),
            ],
        )
        assert made.for_listener("A")[INT] == 2

    def test_overrides_are_listed_with_the_keys_of_the_schema(self) -> None:
        made = configs({"listener.name.internal.int": "2"})
        key = made.keys()["listener.name.internal.int"]
        assert (key.name, key.type, made[key]) == ("listener.name.internal.int", ConfigType.INT, 2)
        assert set(made.keys()) == {*SCHEMA.keys, "listener.name.internal.int"}

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("listener.name.internal.short", "='1': short cannot be set for a single listener"),
            ("listener.name.internal.none", ": unknown, or not supported by raylog"),
            ("listener.name.internal.listener.name.internal.int", ": unknown, or not supported by raylog"),
            ("listener.name..int", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name..x", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name.", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name.a", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name.a.", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name.A.int", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
            ("listener.name.é.int", ": must be listener.name.<name>.<key>, with the listener's name in lower case"),
        ],
    )
    def test_invalid_overrides_are_refused(self, name: str, message: str) -> None:
        assert error({name: "1"}) == name + message

    def test_the_value_of_an_override_is_checked_like_its_key(self) -> None:
        message = "listener.name.internal.int='x': must be a whole number"
        assert error({"listener.name.internal.int": "x"}) == message


class TestPasswords:
    def test_a_password_is_never_shown(self) -> None:
        password = configs({"the.password": SECRET})[PASSWORD]
        assert password is not None
        assert password.reveal() == SECRET
        texts = [repr(password), str(password), f"{password}", f"{password!s:>20}", "%s %r" % (password, password)]  # noqa: UP031
        assert all(SECRET not in text for text in [*texts, repr([password]), repr({"a": password})])
        with pytest.raises(TypeError):
            json.dumps(password)

    def test_it_is_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            logging.getLogger("test").info("configured", extra={"password": Password(SECRET)})
            logging.getLogger("test").info("%s", Password(SECRET))
        assert SECRET not in caplog.text
        assert SECRET not in str(caplog.records[0].__dict__)

    def test_it_is_compared_copied_and_pickled_by_value(self) -> None:
        password = Password(SECRET)
        assert password == Password(SECRET) == pickle.loads(pickle.dumps(password)) == copy.deepcopy(password)
        assert password != Password("other")
        assert password != SECRET
        assert len({password, Password(SECRET)}) == 1

    @pytest.mark.parametrize("name", ["the.password", "listener.name.internal.the.password"])
    def test_an_error_does_not_show_it(self, name: str) -> None:
        assert error({name: "hunter2"}) == f"{name}=[hidden]: must have at least 8 characters"
        assert error({name: "hunter2\0"}) == f"{name}=[hidden]: must not contain NUL characters"
        assert error({name: None}) == f"{name}: must not be null"

    def test_it_is_described_as_null_and_sensitive(self) -> None:
        made = configs({"the.password": SECRET, "listener.name.a.the.password": SECRET})
        for name in ("the.password", "listener.name.a.the.password"):
            key = made.keys()[name]
            assert key.is_sensitive
            assert key.format(made[key]) is None
        assert not INT.is_sensitive

    def test_spaces_and_line_ends_around_it_are_not_part_of_it(self) -> None:
        """As in Kafka, which trims by String.trim: other white space stays."""
        pem = "-----BEGIN KEY-----\nabc def\n-----END KEY-----"
        assert PASSWORD.parse(f" \t{pem}\r\n") == PASSWORD.restore(f"{pem}\n") == Password(pem)
        assert PASSWORD.parse(f"\x1f\xa0{pem}\u2028") == Password(f"\xa0{pem}\u2028")

    def test_a_password_key_has_no_default(self) -> None:
        with pytest.raises(AssertionError):
            ConfigKey("p", ConfigType.PASSWORD, Password(SECRET), "P.")
