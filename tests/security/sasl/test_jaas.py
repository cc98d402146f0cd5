"""JAAS configuration lines are read as Java reads them."""

from __future__ import annotations

import pytest

from raylog.core.errors import ConfigError
from raylog.security.sasl.jaas import parse_jaas
from tests.support.mutations import mutations

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username=alice password='secret'", {"username": "alice", "password": "secret"}),
        ('user_alice="a \\"b\\" \\\\ c;="', {"user_alice": 'a "b" \\ c;='}),
        ('\n  user_alice = "1"\n  user_bob=\'"\'  ', {"user_alice": "1", "user_bob": '"'}),
        ('password=";"', {"password": ";"}),
        ('password="="', {"password": "="}),
        ("tokenauth=true", {"tokenauth": "true"}),
        ("", {}),
    ],
)
def test_options(options: str, expected: dict[str, str]) -> None:
    entry = parse_jaas(f"{PLAIN} required {options};")
    assert entry.module == PLAIN
    assert dict(entry.options) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f"{PLAIN} maybe user=x;",
        f"{PLAIN} required password=hunter2",
        f"{PLAIN} required password=hunter2; {PLAIN} required;",
        f'{PLAIN} required password="hunter2;',
        f"{PLAIN} required password;",
        f"{PLAIN} required password=;",
        f"{PLAIN} required =hunter2 x;",
        f"{PLAIN} required password==hunter2;",
        f"{PLAIN} required password=hunter2 password=hunter2;",
        f"{PLAIN} required password=hunter2%;",
    ],
)
def test_what_is_not_one_entry_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config") as refused:
        parse_jaas(text)
    assert "hunter" not in refused.value.message


def test_an_entry_does_not_show_its_values() -> None:
    assert "secret" not in repr(parse_jaas(f'{PLAIN} required password="secret";'))


def test_mutated_lines_raise_nothing_else() -> None:
    line = f"{PLAIN} required user_alice=\"secret\" user_bob='x';".encode()
    for mutation in mutations(line, 500, "jaas"):
        try:
            parse_jaas(mutation.decode(errors="replace"))
        except ConfigError:
            pass
