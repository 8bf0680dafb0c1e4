"""Which requests to Kafka Connect carry the operator's credentials."""

from pathlib import Path

import pytest

from hifi.runtime.connect_credentials import authorization
from hifi.runtime.errors import Misconfigured

VARIABLE = "HIFI_CONNECT_CREDENTIALS_FILE"


@pytest.mark.parametrize(
    "url",
    [
        "http://other:8083/connectors",
        "http://connect:8084/connectors",
        "https://connect:8083/connectors",
        "http://connect.evil.example:8083/connectors",
        "http://hifi@connect.evil.example:8083/",
        "http://connect/connectors",
    ],
)
def test_the_password_is_sent_to_the_url_that_the_operator_names_only(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text("http://connect:8083 hifi secret\nhttp://second:8083 hifi another\n")
    monkeypatch.setenv(VARIABLE, str(file))
    assert authorization("http://connect:8083/connectors?expand=info") == {
        "Authorization": "Basic aGlmaTpzZWNyZXQ="
    }
    assert authorization("http://second:8083/connectors") == {"Authorization": "Basic aGlmaTphbm90aGVy"}
    assert authorization(url) == {}


def test_without_a_file_none_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert authorization("http://connect:8083/") == {}
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent"))
    assert authorization("http://connect:8083/") == {}


def test_a_line_that_is_wrong_is_told_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text("http://connect:8083 secret\n")
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(Misconfigured, match="needs lines `URL USER PASSWORD`") as refusal:
        authorization("http://connect:8083/")
    assert "secret" not in str(refusal.value)
