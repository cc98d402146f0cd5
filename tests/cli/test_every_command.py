"""Every command has an example that works, --json, completion, and errors of one line; walked over all of them."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from raylog.cli.examples import EXAMPLES, commands
from raylog.cli.main import MODULE_OF, main, make_parser
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster

COMMANDS = dict(commands(make_parser()))
UNTIL_INTERRUPTED = "runs until it is interrupted"
WITHOUT_JSON = {
    "start": UNTIL_INTERRUPTED,
    "console": UNTIL_INTERRUPTED,
    "mirror start": UNTIL_INTERRUPTED,
    "dump-log": "has the format of kafka-dump-log",
    "completion": "is a script",
    "verifiable-producer": "prints JSON always",
    "verifiable-consumer": "prints JSON always",
}
"""Commands that cannot print JSON, and why."""
REFUSED = {
    "tokens create",  # the cluster has no secret for tokens
    "tokens describe",
    "tokens renew",
    "tokens expire",
    "transactions describe",  # there are no transactions
    "transactions abort",
    "log-dirs move",  # a broker has one directory
    "audit check",  # nothing was counted
    "brokers decommission",  # there is no broker 3
    "brokers unregister",
    "quorum add",  # there is one controller
    "quorum remove",
    "acls list",  # the cluster has no authorizer
    "acls add",
    "acls remove",
    "sweep-values",  # there is no topic models
}
"""Examples that the cluster of the test refuses."""
SILENT = {"share-consume"}
"""Examples that have nothing to print: a new share group begins at the end."""
LAST = ("groups delete", "users remove", "acls remove", "quotas remove", "topics delete")
"""Examples after which others would find nothing."""


def has(command: argparse.ArgumentParser, option: str) -> bool:
    return any(option in action.option_strings for action in command._actions)


OF_BROKERS = [name for name in EXAMPLES if has(COMMANDS[name], "--bootstrap-server")]


def arguments(name: str) -> list[str]:
    """Those of the example, without a redirection."""
    program, *words = shlex.split(re.split(r" [<>] ", EXAMPLES[name])[0])
    assert program == "raylog"
    return words


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the examples, in the working directory."""
    partition = {"topic": "orders", "partition": 0}
    (tmp_path / "offsets.json").write_text(json.dumps({"partitions": [{**partition, "offset": 0}]}))
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": [{**partition, "replicas": [1]}]}))
    (tmp_path / "alice.txt").write_text("a password\n")
    (tmp_path / "alice.properties").write_text("")
    monkeypatch.chdir(tmp_path)


def test_the_module_of_each_command_is_known() -> None:
    assert {name.partition(" ")[0] for name in COMMANDS} == set(MODULE_OF)
    for word, module in MODULE_OF.items():
        assert any(name.partition(" ")[0] == word for name, _ in commands(make_parser([module])))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_of_the_command(name: str) -> None:
    parsed = make_parser().parse_args(arguments(name))
    assert callable(parsed.run)
    assert " ".join(arguments(name)).startswith(name)
    assert f"example:\n  {EXAMPLES[name]}\n" in COMMANDS[name].format_help()


def test_there_is_no_example_without_a_command() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


def test_every_command_has_the_common_options() -> None:
    assert {name for name, command in COMMANDS.items() if not has(command, "--json")} == WITHOUT_JSON.keys()
    assert all(has(COMMANDS[name], "--command-config") for name in OF_BROKERS)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments(name), "--no-such-option"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "unrecognized arguments: --no-such-option" in err
    assert f"(see {COMMANDS[name].prog} --help)" in err


def test_two_dashes_can_be_the_value_of_an_option() -> None:
    options = make_parser(["produce"]).parse_args(["produce", "orders", "--key-separator=--"])
    assert options.key_separator == "--"
    assert make_parser(["produce"]).parse_args(["produce", "--", "orders"]).topic == "orders"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("topics create t --partitions", "must be at most 2147483647"),
        ("reassign generate --broker-list", "must be at most 2147483647"),
        ("start --broker-config", "must begin with the id of a broker and a colon"),
        ("log-dirs move --broker 0 --to d", "must be a topic, or topic:0,1,..."),
    ],
)
def test_a_number_of_thousands_of_digits_is_too_large(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = "9" * 5000
    value = {"start": f"{digits}:a=b", "log-dirs": f"t:{digits}"}.get(command.split()[0], digits)
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), value])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", OF_BROKERS)
def test_an_unreachable_cluster_is_one_line(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"key:value\n")))
    assert main([*arguments(name), "--bootstrap-server", "127.0.0.1:1"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("raylog: ")
    assert "127.0.0.1:1" in err


@pytest.mark.usefixtures("files")
def test_every_example_works_and_prints_json(cli: Cli, cluster: RunningCluster) -> None:
    wrong = []
    ending = [each for each in OF_BROKERS if WITHOUT_JSON.get(each) != UNTIL_INTERRUPTED and each not in LAST]
    for name in [*ending, *LAST]:
        words = arguments(name)
        if "--json" not in words and name not in WITHOUT_JSON:
            words.append("--json")
        result = cli(*words, stdin=b"key:value\n")
        if name in REFUSED:
            if (result.code, result.err.count("\n")) != (1, 1):
                wrong.append((name, result))
            continue
        try:
            assert result.code == 0
            assert [json.loads(line) for line in result.out.splitlines()] or name in SILENT
        except (AssertionError, ValueError):
            wrong.append((name, result))
    assert not wrong, "\n".join(map(str, wrong))


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (("topics", "cr"), "create"),
            (("topics", "create", "--repl"), "--replication-factor"),
            (("elect", "--election-type", "u"), "unclean"),
        ],
    )
    def test_bash(self, words: tuple[str, ...], found: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", "bash"]) == 0
        script = capsys.readouterr().out
        completing = f"COMP_WORDS=(raylog {' '.join(words)}); COMP_CWORD={len(words)}; _shtab_raylog"
        asked = f'{script}\n{completing}; echo "${{COMPREPLY[@]}}"'
        shown = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        assert shown.stdout.split() == [found]

    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_other_shells(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(word in script for word in ("raylog", "topics", "create", "replication-factor"))
