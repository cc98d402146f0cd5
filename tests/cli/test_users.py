"""`raylog users`: users are created, shown, changed and removed, and passwords are not on the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.cli import users
from tests.cli.conftest import Cli


def listed(cli: Cli) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(cli("users", "list", "--json").out)
    return found


def test_a_user_lives_a_whole_life(cli: Cli, tmp_path: Path) -> None:
    created = cli("users", "set", "alice", stdin=b"wonderland\n")
    assert (created.code, created.out, created.err) == (0, "Set the password of user alice.\n", "")
    assert listed(cli) == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    (tmp_path / "password").write_text("other\nsecond line\n")
    one = ("--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--password-file", str(tmp_path / "password"))
    assert cli("users", "set", "alice", *one).code == 0
    assert listed(cli) == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}}
    assert "alice  SCRAM-SHA-512  8192" in cli("users", "list").out
    assert cli("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256").code == 0
    assert listed(cli) == {"alice": {"SCRAM-SHA-512": 8192}}
    assert cli("users", "remove", "alice").out == "Removed user alice.\n"
    assert listed(cli) == {}


def test_the_end_of_the_terminals_input_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D at the prompt."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(users, "sys", SimpleNamespace(stdin=Terminal()))
    monkeypatch.setattr("getpass.getpass", ended)
    assert cli("users", "set", "bob") == (1, "", "raylog: the input has ended\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("set", "bob"), b"", "the password is empty"),
        (("set", "bob"), b"\n", "the password is empty"),
        (("set", "bob", "--password-file", "/nowhere"), b"", "/nowhere: No such file or directory"),
        (("set", "bob", "--password-file", "/bin/true"), b"", "/bin/true: is not UTF-8 text"),
        (("set", "bob"), b"\xff\n", "can't decode byte 0xff"),
        (("set", "bob\udcff"), b"x\n", "surrogates not allowed"),
        (("set", ""), b"x\n", "Username must not be empty."),
        (("set", "bob", "--iterations", "100000"), b"x\n", "Too many iterations: must be at most 16384."),
        (("remove", "nobody"), b"", "there is no user 'nobody'"),
    ],
)
def test_what_is_not_possible_is_one_clear_line(
    cli: Cli, arguments: tuple[str, ...], stdin: bytes, message: str
) -> None:
    refused = cli("users", *arguments, stdin=stdin)
    assert refused.code == 1
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
    assert listed(cli) == {}
