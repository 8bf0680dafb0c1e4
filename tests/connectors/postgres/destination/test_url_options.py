"""The secret URL of a destination has libpq connect to its server, and read the pipe's own certificates."""

import re
from pathlib import Path

import pytest

from hifi.delivery.kind import WriterContext
from hifi.runtime.errors import Misconfigured
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.writer import PostgresWriter

URL = "postgresql://hifi:geheim@db.example/shop"


def opened(monkeypatch: pytest.MonkeyPatch, url: str) -> PostgresWriter:
    monkeypatch.setenv("DB", url)
    settings = PostgresSettings.model_validate(
        {"url": {"env": "DB"}, "table": "t", "columns": {"a": "a"}, "key": ["a"]}
    )
    return PostgresWriter(settings, WriterContext("s", "orders", "d", 1, 10))


@pytest.mark.parametrize(
    "option",
    [
        *("sslkeylogfile=/tmp/written", "service=other", "passfile=/run/secrets/passwords", "gsslib=gssapi"),
        *(
            "oauth_issuer=https%3A%2F%2F169.254.169.254%2F",
            "krbsrvname=x",
            "sslcrldir=/etc",
            "replication=database",
        ),
    ],
)
def test_an_option_that_names_a_file_or_another_server_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    name = option.partition("=")[0]
    with pytest.raises(Misconfigured, match=f"the secret `url` has the option {name}") as refusal:
        opened(monkeypatch, f"{URL}?{option}")
    assert "geheim" not in str(refusal.value)


@pytest.mark.parametrize(
    ("password", "database"),
    [
        *(
            (password, "/shop")
            for password in ("ge@heim", "ge@heim:w0rd", "ge@@heim", "ge/heim", "ge@heim/w0rd")
        ),
        ("ge@heim/w0rd", ""),
        ("123/he%40im", "/shop"),
        ("123/heim", "/shop"),
    ],
)
def test_no_part_of_a_password_that_is_not_percent_encoded_is_told(
    monkeypatch: pytest.MonkeyPatch, password: str, database: str
) -> None:
    with pytest.raises(Misconfigured, match="percent-encode its user and password") as refusal:
        opened(monkeypatch, f"postgresql://hifi:{password}@db.example{database}")
    assert not re.search("ge|heim|w0rd|123", str(refusal.value).replace("percent-encode", ""))


def test_hosts_databases_and_sockets_are_accepted_in_each_way_to_write_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in (
        *(
            "postgresql://u:ge%40heim@db,[2001:db8::1]:5433/shop",
            "postgresql://u@%2Ftmp/shop",
            "postgresql:///shop",
            "postgresql://u:p@db/my%40shop?application_name=a@b",
            "postgres://u:p@db?dbname=my%40shop",
        ),
        *(
            "host=@socket password=a@b",
            "host=db dbname=my@shop password=a://b/c@d",
            "postgresql://u:p@db?application_name=a@b",
        ),
    ):
        opened(monkeypatch, url)


@pytest.mark.parametrize(
    ("options", "is_allowed"),
    [
        ("sslmode=verify-full&sslrootcert=system", True),
        ("sslrootcert={own}/ca.pem&sslcert={own}/c.pem&sslkey={own}/k.pem", True),
        ("sslrootcert=/run/other/ca.pem", False),
        ("sslcert=/run/other/c.pem", False),
        ("sslkey=/run/other/k.pem", False),
        ("sslkey=engine%3Akey", False),
        ("sslkey=k.pem", False),
        ("connect_timeout=5&options=-csearch_path%3Da&target_session_attrs=read-write&keepalives=1", True),
    ],
)
def test_certificates_and_keys_are_the_pipes_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: str, is_allowed: bool
) -> None:
    own_folder = tmp_path / "orders"
    own_folder.mkdir()
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(tmp_path))
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "orders=DB")
    url = f"{URL}?{options.format(own=own_folder)}"
    if is_allowed:
        opened(monkeypatch, url)
        return
    with pytest.raises(Misconfigured, match="not allowed"):
        opened(monkeypatch, url)
