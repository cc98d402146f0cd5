"""`--command-config`: the commands log in with a file of client properties, and fail with a clear line otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.cli.main import main
from tests.cli.conftest import Result
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.new(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[RunningCluster]:
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "127.0.0.1")),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_admin="secret" user_bob="builder";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with cluster_thread(config, tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def properties(secure: RunningCluster, certificates: Certificates, tmp_path: Path) -> Callable[..., str]:
    """Writes a file of properties, with which commands need no --bootstrap-server."""

    def write(user: str = "admin", password: str = "secret") -> str:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            f"""
# as for Kafka's tools
bootstrap.servers={secure.bootstrap_servers}
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={certificates.trusted}
sasl.mechanism=PLAIN
sasl.jaas.config={MODULE} required \\
    username="{user}" password="{password}";
client.id=tools
retries=3
"""
        )
        return str(path)

    return write


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Result:
        return Result(main(arguments), *capfd.readouterr())

    return run


def test_an_administrator_uses_the_commands(run: Run, properties: Callable[..., str]) -> None:
    login = ("--command-config", properties())
    created = run("topics", "create", "orders", *login)
    assert (created.code, created.err) == (0, "")
    assert "orders" in run("topics", "list", *login).out
    for command in (
        ("topics", "describe", "orders"),
        ("groups", "list"),
        ("configs", "describe", "--topic", "orders"),
        ("acls", "list"),
        ("quotas", "list"),
        ("brokers", "list"),
        ("quorum", "describe"),
        ("features", "describe"),
        ("log-dirs", "describe"),
        ("reassign", "list"),
        ("consume", "orders", "-e"),
    ):
        done = run(*command, *login)
        assert (done.code, done.err) == (0, ""), command


def test_an_identity_without_the_right_is_refused(run: Run, properties: Callable[..., str]) -> None:
    refused = run("topics", "create", "other", "--command-config", properties("bob", "builder"))
    assert refused.code == 1
    assert "AUTHORIZATION_FAILED" in refused.err


def test_a_wrong_password_is_one_clear_line(run: Run, properties: Callable[..., str]) -> None:
    refused = run("topics", "list", "--command-config", properties("admin", "wrong"))
    assert refused.code == 1
    assert refused.err == "raylog: SASL_AUTHENTICATION_FAILED: Authentication failed: Invalid username or password\n"


def test_without_properties_the_connection_is_refused(run: Run, secure: RunningCluster) -> None:
    refused = run("topics", "list", "--bootstrap-server", secure.bootstrap_servers)
    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("security.protocol=SASL\n", "security.protocol='SASL': must be one of"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n", "sasl.jaas.config: must be set"),
        ("a=b\na=c\n", "client.properties: line 2: a is set twice"),
        ("bootstrap.servers=nowhere\n", "bootstrap.servers='nowhere': must be host:port"),
    ],
)
def test_a_bad_file_is_one_clear_line(run: Run, tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_text(content)
    refused = run("topics", "list", "--command-config", str(path))
    assert refused.code == 1
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
