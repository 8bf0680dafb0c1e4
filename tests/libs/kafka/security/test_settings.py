from pathlib import Path

import pytest

from hifi.kafka.security import KafkaSecurity, client_options, java_client_options, load_security, use
from hifi.runtime.errors import Misconfigured

SASL = {"HIFI_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "HIFI_KAFKA_SECURITY_USER": "me"}


def _set(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_without_variables_clients_use_plaintext() -> None:
    assert client_options("k:9092") == {"bootstrap_servers": "k:9092"}
    assert java_client_options("k:9092") == {"bootstrap.servers": "k:9092"}


def test_user_and_password_reach_both_kinds_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text('a"b\\c\n')
    _set(monkeypatch, SASL | {"HIFI_KAFKA_SECURITY_PASSWORD_FILE": str(tmp_path / "password")})
    options = client_options("k:9092")
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("me", 'a"b\\c')
    java = java_client_options("k:9092")
    assert java["security.protocol"] == "SASL_PLAINTEXT"
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\c";'
    )


def test_a_new_client_has_the_newest_password_and_a_missing_file_keeps_the_last(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", user="me", password_file=file)
    assert client_options("k:1", security)["sasl_plain_password"] == "old"
    file.write_text("new")
    assert client_options("k:1", security)["sasl_plain_password"] == "new"
    file.write_text("")
    assert client_options("k:1", security)["sasl_plain_password"] == "new"
    file.unlink()
    assert client_options("k:1", security)["sasl_plain_password"] == "new"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PROTOCOL": "TLS"}, "HIFI_KAFKA_SECURITY_PROTOCOL: Input should be"),
        ({"PROTOCOL": "SASL_SSL"}, "HIFI_KAFKA_SECURITY_PROTOCOL=SASL_SSL needs HIFI_KAFKA_SECURITY_USER"),
        ({"USER": "me"}, "PROTOCOL=PLAINTEXT sends no user and password"),
        ({"CA_FILE": "/ca.pem"}, "PROTOCOL=PLAINTEXT does not use TLS"),
        ({"PROTOCOL": "SSL", "KEY_FILE": "/key.pem"}, "set both HIFI_KAFKA_SECURITY_CERTIFICATE_FILE and"),
        (
            {"PROTOCOL": "SASL_SSL", "MECHANISM": "OAUTHBEARER", "USER": "me", "PASSWORD_FILE": "/p"},
            "HIFI_KAFKA_SECURITY_MECHANISM=OAUTHBEARER needs HIFI_KAFKA_SECURITY_TOKEN_URL",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(monkeypatch, {f"HIFI_KAFKA_SECURITY_{name}": value for name, value in variables.items()})
    with pytest.raises(Misconfigured, match=message):
        load_security()


@pytest.mark.parametrize(
    ("security", "message"),
    [
        ({"protocol": "SSL", "ca_file": "none.pem"}, "CA_FILE: none.pem cannot be read: No such file"),
        (
            {"protocol": "SASL_PLAINTEXT", "user": "me", "password_file": "none"},
            "PASSWORD_FILE: none cannot be read",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    security: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured, match=message):
        client_options("k:1", KafkaSecurity.model_validate(security))


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(Misconfigured, match=r"HIFI_KAFKA_SECURITY_CA_FILE: .* cannot be used"):
        client_options("k:1", KafkaSecurity(protocol="SSL", ca_file=tmp_path / "ca.pem"))


def test_security_named_for_an_address_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("p")
    _set(monkeypatch, SASL | {"HIFI_KAFKA_SECURITY_PASSWORD_FILE": str(tmp_path / "password")})
    use("own:1", KafkaSecurity())
    assert "sasl_mechanism" not in client_options("own:1")
    assert "sasl_mechanism" in client_options("other:1")


def test_the_environment_of_another_process_gives_it_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = KafkaSecurity(
        protocol="SASL_SSL",
        user="me",
        password_file=tmp_path / "p",
        ca_file=tmp_path / "ca",
        mechanism="PLAIN",
    )
    _set(monkeypatch, security.environment)
    assert load_security() == security


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a/b", "/etc/passwd", "http://a b/", "http://a/\nb", "https://"]
)
def test_a_token_url_is_http_or_https(url: str) -> None:
    with pytest.raises(ValueError, match="TOKEN_URL"):
        KafkaSecurity(token_url=url)
    assert KafkaSecurity(token_url="https://login.example:8443/token?a=b").token_url
