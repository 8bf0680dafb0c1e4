"""Reading lookups: every kind of source, and every way in which one can be wrong."""

import re
import socket
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import make_url

from hifi.pipe.model import Lookup, SqlTable
from hifi.runtime.egress import EgressRefused
from hifi.runtime.errors import Misconfigured
from hifi.spark.lookup_reader import ReadLimits, _connection_arguments, _url, read_rows

CSV = 'code,name\nAA,"American, Inc."\nUA,\n'


def lookup(file: Path | str = "/x.csv", **settings: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **settings}
    )


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"code": ["AA", "UA"], "name": ["American, Inc.", None], "other": [1, 2]}), path)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a.csv": lambda path: path.write_text(CSV),
    "bom.csv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
    "a.json": lambda path: path.write_text(
        '[{"code":"AA","name":"American, Inc."},{"code":"UA","name":null}]'
    ),
    "lines.json": lambda path: path.write_text(
        '{"code":"AA","name":"American, Inc."}\n\n{"code":"UA","name":null}\n'
    ),
    "a.ndjson": lambda path: path.write_text(
        '{"code":"AA","name":"American, Inc."}\n{"code":"UA","name":null}'
    ),
    "bom.json": lambda path: path.write_text(
        '\ufeff[{"code":"AA","name":"American, Inc."},{"code":"UA","name":null}]'
    ),
    "bom.ndjson": lambda path: path.write_text(
        '\ufeff{"code":"AA","name":"American, Inc."}\n{"code":"UA","name":null}'
    ),
    "a.parquet": parquet,
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    SOURCES[name](tmp_path / name)
    rows = read_rows(lookup(tmp_path / name), "p")
    assert [(row["code"], row["name"]) for row in rows] == [("AA", "American, Inc."), ("UA", None)]


@pytest.mark.parametrize("template", ["[%s]", "%s"])
def test_json_values_are_text_as_they_are_written(tmp_path: Path, template: str) -> None:
    values = ["1000000000000000000000000000000", "1e999", "1.10", "-0", "1E5", '{"a":1.10}', "[1,2.0]"]
    members = ",".join(f'"c{number}":{value}' for number, value in enumerate(values))
    row = f'{{"code":"\\u00e4","name":true,{members}}}'
    (tmp_path / "a.json").write_text(template % row)
    columns = {f"f{number}": f"c{number}" for number in range(len(values))}
    (read_row,) = read_rows(lookup(tmp_path / "a.json", fields=columns), "p")
    assert read_row == {"code": "ä", "name": True} | {
        f"c{number}": value for number, value in enumerate(values)
    }


def test_a_sql_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("create table airlines (code text, name text, size int)")
        database.executemany(
            "insert into airlines values (?, ?, ?)", [("AA", "American", 9), ("UA", None, None)]
        )
    monkeypatch.setenv("DB", f"sqlite:///{tmp_path / 'db'}")
    sql = {"url": {"env": "DB"}, "query": "select * from airlines"}
    sql_lookup = Lookup.model_validate(
        {"sql": sql, "key": {"c": "code"}, "fields": {"n": "name", "s": "size"}, "types": {"size": "int"}}
    )
    assert [dict(row) for row in read_rows(sql_lookup, "p")] == [
        {"code": "AA", "name": "American", "size": 9},
        {"code": "UA", "name": None, "size": None},
    ]
    twice = sql_lookup.model_copy(
        update={
            "sql": SqlTable.model_validate(sql | {"query": "select *, upper(name) as name from airlines"})
        }
    )
    with pytest.raises(Misconfigured, match="it has the column name twice"):
        read_rows(twice, "p")
    other = sql | {"query": "select *, 1 as other, 2 as other from airlines"}
    assert len(read_rows(sql_lookup.model_copy(update={"sql": SqlTable.model_validate(other)}), "p")) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", None, "does not exist"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"code,name\nAA\n", "line 2"),
        ("a.csv", b"code,name\nAA,b,c\n", "line 2"),
        ("a.csv", b"code,title\nAA,b\n", "no column name; it has code, title"),
        ("a.csv", b"code,name,name\nAA,b,c\n", "it has the column name twice"),
        ("a.csv", b"broken", "no column code, name; it has broken"),
        ("a.csv", b"code,name\n\xff,b\n", "not UTF-8"),
        ("a.csv", b'code,name\n"AA,b\n', "cannot be read"),
        ("a.json", b"[{]", "cannot be read"),
        ("a.json", b"[1]", "array of objects"),
        ("a.json", b'[{"code":"\xff","name":"x"}]', "not UTF-8"),
        ("a.json", b'[{"code":"\\ud800","name":"x"}]', "cannot be read"),
        ("a.ndjson", b'{"code":"AA","name":"x"}\n{"code":"\xff"}', "line 2 is not JSON: not UTF-8"),
        ("a.ndjson", b'{"code":"AA","name":"x"}\n{', "line 2 is not JSON"),
        ("a.ndjson", b"3\n", "line 1 is not a JSON object"),
        ("a.parquet", b"PAR1 not really", "cannot be read"),
    ],
)
def test_the_problem_of_a_file_is_reported(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Misconfigured, match=message) as caught:
        read_rows(lookup(tmp_path / name), "p")
    assert name in str(caught.value)


def test_times_of_96_bits_keep_the_years_that_nanoseconds_do_not_have(tmp_path: Path) -> None:
    until = datetime(9999, 12, 31)  # noqa: DTZ001 - as Spark writes it
    table = pa.table({"code": ["AA"], "name": pa.array([until], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read_rows(lookup(tmp_path / "a.parquet"), "p") == [{"code": "AA", "name": until}]


def test_a_parquet_file_with_a_declared_column_twice_is_refused_and_with_another_one_is_read(
    tmp_path: Path,
) -> None:
    arrays = [pa.array([text]) for text in ("AA", "b", "c")]
    for names, is_read in ((["code", "name", "name"], False), (["code", "other", "name"], True)):
        pq.write_table(pa.Table.from_arrays(arrays, names=names), tmp_path / "a.parquet")
        if is_read:
            assert read_rows(lookup(tmp_path / "a.parquet"), "p") == [{"code": "AA", "name": "c"}]
            continue
        with pytest.raises(Misconfigured, match="it has the column name twice"):
            read_rows(lookup(tmp_path / "a.parquet"), "p")


def test_a_parquet_file_without_rows_must_have_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"title": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(Misconfigured, match="no column code, name; it has title"):
        read_rows(lookup(tmp_path / "a.parquet"), "p")


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "cockroachdb+psycopg2cffi://host/db")
    sql_lookup = Lookup.model_validate(
        {"sql": {"url": {"env": "DB"}, "query": "select 1"}, "key": {"c": "c"}, "fields": {"n": "n"}}
    )
    with pytest.raises(Misconfigured, match="the query of the SQL table"):
        read_rows(sql_lookup, "p")
    monkeypatch.setenv("DB", "mysql+mysqldb://host/db")
    with pytest.raises(Misconfigured, match="driver that is not installed"):
        read_rows(sql_lookup, "p")


@pytest.mark.slow
def test_a_name_that_is_bound_again_after_it_was_judged_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["93.184.216.34", "10.0.0.5"], ["127.0.0.1"], ["127.0.0.1"]]

    def resolved(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    connect_options: list[dict[str, Any]] = []

    def connect(*_: Any, **options: Any) -> None:
        connect_options.append(options)
        raise psycopg.OperationalError("not today")

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    monkeypatch.setenv("DB", "postgresql+psycopg://hifi:secret@db.example/shop")
    sql = {"url": {"env": "DB"}, "query": "select 1 as code, 2 as name"}
    lookup = Lookup.model_validate({"sql": sql, "key": {"carrier": "code"}, "fields": {"airline": "name"}})
    with pytest.raises(Misconfigured):
        read_rows(lookup, "p")
    connection_options = {name: connect_options[0][name] for name in ("host", "hostaddr", "port")}
    assert connection_options == {"host": "db.example", "hostaddr": "93.184.216.34", "port": "5432"}
    with pytest.raises(Misconfigured, match="to which pipes may not connect"):
        read_rows(lookup, "p")
    assert len(connect_options) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        *("VACUUM INTO '{folder}/written.db'", "ATTACH '{folder}/written.db' AS x", "DROP TABLE airlines"),
        *("INSERT INTO airlines VALUES ('X', 'Y') RETURNING code, name", "PRAGMA journal_mode = DELETE"),
        "CREATE TABLE written (code)",
        "SELECT file AS code, name FROM pragma_database_list",
        "SELECT load_extension('x') AS code, 1 AS name",
    ],
)
def test_a_query_of_a_sqlite_file_reads_its_tables_and_does_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, query: str
) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE airlines (code, name)")
        connection.execute("INSERT INTO airlines VALUES ('AA', 'American')")
    content = (tmp_path / "a.db").read_bytes()
    monkeypatch.setenv("DB", f"sqlite:///{tmp_path}/a.db")

    def declared(text: str) -> Lookup:
        sql = {"url": {"env": "DB"}, "query": text}
        return Lookup.model_validate({"sql": sql, "key": {"c": "code"}, "fields": {"n": "name"}})

    with pytest.raises(Misconfigured, match="authoriz"):
        read_rows(declared(query.format(folder=tmp_path)), "p")
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]
    assert (tmp_path / "a.db").read_bytes() == content
    recursive = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3)"
    rows = read_rows(
        declared(f"{recursive} SELECT code || i AS code, upper(name) AS name FROM airlines, n"), "p"
    )
    assert [row["code"] for row in rows] == ["AA1", "AA2", "AA3"]


LARGE: dict[str, Callable[[Path], Any]] = {
    "a.csv": lambda path: path.write_text("code,name\n" + "AA,American\n" * 1000),
    "a.json": lambda path: path.write_text("[" + ",".join(['{"code":"AA","name":"American"}'] * 1000) + "]"),
    "a.ndjson": lambda path: path.write_text('{"code":"AA","name":"American"}\n' * 1000),
    "a.parquet": lambda path: pq.write_table(
        pa.table({"code": ["AA"] * 1000, "name": ["American"] * 1000}), path
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_file_whose_rows_need_more_memory_than_allowed_is_refused(tmp_path: Path, name: str) -> None:
    LARGE[name](tmp_path / name)
    assert len(read_rows(lookup(tmp_path / name), "p", ReadLimits(memory_bytes=1_000_000))) == 1000
    with pytest.raises(
        Misconfigured, match=f"{name} cannot be read: it needs more than .* HIFI_ENRICH_LOOKUP_MB"
    ):
        read_rows(lookup(tmp_path / name), "p", ReadLimits(memory_bytes=50_000))


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("", "more than 1 MB"), (" WHERE i < 0", "interrupted")],
)
def test_a_query_that_makes_rows_for_ever_or_none_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, condition: str, reason: str
) -> None:
    monkeypatch.setenv("DB", f"sqlite:///{tmp_path}/a.db")
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS code, i AS name FROM n"
    )
    sql = {"url": {"env": "DB"}, "query": endless + condition}
    lookup = Lookup.model_validate({"sql": sql, "key": {"c": "code"}, "fields": {"n": "name"}})
    with pytest.raises(Misconfigured, match=reason):
        read_rows(lookup, "p", ReadLimits(memory_bytes=1_000_000, query_s=0.5))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql+psycopg:///db?host=10.0.0.5&port=5432", "the option host, port"),
        ("postgresql+psycopg://8.8.8.8/db?hostaddr=10.0.0.5", "the option hostaddr"),
        ("postgresql+psycopg:///db", "loopback"),
        ("mysql+pymysql://8.8.8.8/db?read_default_file=/etc/passwd", "the option read_default_file"),
        ("mssql+pyodbc:///?odbc_connect=SERVER%3D10.0.0.5", "the option odbc_connect"),
        ("sqlite:////etc/passwd", "LOOKUP_FOLDERS"),
        ("sqlite:///file:/etc/passwd?uri=true", "the option uri"),
    ],
)
def test_a_url_with_another_way_to_a_server_or_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, reason: str
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    monkeypatch.setenv("HIFI_PIPES_LOOKUP_FOLDERS", str(tmp_path))
    with pytest.raises((EgressRefused, ValueError), match=reason):
        _connection_arguments(make_url(url), "p")


@pytest.mark.parametrize("dialect", ["postgresql+psycopg", "mysql+pymysql"])
@pytest.mark.parametrize(
    "address",
    ["ge@heim@db", "ge@heim:w0rd@db", "ge@heim-w0rd@db:3306", "ge@heim/w0rd@db", "ge@heim?w0rd=1@db"],
)
def test_no_part_of_a_password_that_is_not_percent_encoded_is_told(
    monkeypatch: pytest.MonkeyPatch, dialect: str, address: str
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    monkeypatch.setenv("DB", f"{dialect}://shop:{address}/shop")
    sql = {"url": {"env": "DB"}, "query": "select 1"}
    lookup = Lookup.model_validate({"sql": sql, "key": {"c": "c"}, "fields": {"n": "n"}})
    with pytest.raises(Misconfigured, match="percent-encode user and password") as refusal:
        read_rows(lookup, "p")
    assert not re.search("heim|w0rd", str(refusal.value))


@pytest.mark.parametrize(
    "text", ["mysql://us@er:p%40ss@db:3306/shop", "mysql://u:p/s?s@db", "sqlite:////a@b@c.db"]
)
def test_urls_with_encoded_passwords_are_read(text: str) -> None:
    assert _url(text) == make_url(text)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("postgresql+psycopg://8.8.8.8/db?sslrootcert=system", True),
        ("postgresql+psycopg://8.8.8.8/db?sslrootcert={own}/ca.pem", True),
        ("postgresql+psycopg://8.8.8.8/db?sslrootcert=/run/other/ca.pem", False),
        ("postgresql+psycopg://8.8.8.8/db?sslrootcert={own}/ca.pem&sslrootcert=/run/other/ca.pem", False),
        ("mysql+pymysql://8.8.8.8/db?ssl_ca=/run/other/ca.pem", False),
        ("mysql+pymysql://8.8.8.8/db?SSL_CA=/run/other/ca.pem", False),
    ],
)
def test_authorities_of_a_url_are_files_of_the_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, is_allowed: bool
) -> None:
    """Whether a file can be read tells whether it exists."""
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(tmp_path))
    parsed = make_url(url.format(own=tmp_path / "p"))
    if is_allowed:
        assert _connection_arguments(parsed, "p")["hostaddr"] == "8.8.8.8"
        return
    with pytest.raises(EgressRefused, match="not allowed"):
        _connection_arguments(parsed, "p")
