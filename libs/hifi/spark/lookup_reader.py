"""Reads the rows of a lookup from its file or SQL table. Blocking: call it from a thread."""

import csv
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow.parquet as pq
import sqlalchemy
from pyarrow import ArrowException

from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Lookup, SqlTable
from hifi.record.cloudevents.event import InvalidEvent
from hifi.record.cloudevents.json_slices import array_elements, check_utf8, value_slice, without_bom
from hifi.runtime.clock import monotonic_s
from hifi.runtime.egress import EgressKind, EgressRefused, egress, pinned
from hifi.runtime.errors import Misconfigured

_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "mssql": 1433, "oracle": 1521}
_OPTIONS: Final = frozenset(
    (
        *("application_name", "charset", "client_encoding", "connect_timeout", "driver", "encrypt"),
        *("service_name", "ssl_ca", "sslmode", "sslrootcert", "trustservercertificate"),
    )
)
"""Options of a URL that name neither a server nor a file to read, but for certificates of authorities."""
_CERTIFICATES: Final = ("ssl_ca", "sslrootcert")
_AUTHORITIES_OF_THE_SYSTEM: Final = "system"
_READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
"""Actions that a query of a SQLite file may take; SQLite asks about each part of it."""
_STEPS: Final = 100_000
"""Steps of a query of a SQLite file, some milliseconds, after which its time is looked at."""
_ROW_BYTES: Final = 300
"""Memory of a row, beside its values."""
_BATCH_ROWS: Final = 1000
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()


class ReadLimits(NamedTuple):
    """Limits of memory and time for reading a lookup.

    Attributes:
        memory_bytes: of its rows.
        query_s: of a query of PostgreSQL or SQLite, seconds.
    """

    memory_bytes: int = 1024**3
    query_s: float = 120


_DEFAULT_LIMITS: Final = ReadLimits()


def read_rows(lookup: Lookup, pipe: str, limits: ReadLimits = _DEFAULT_LIMITS) -> list[Mapping[str, Any]]:
    """All rows, each a mapping of column to value with at least the columns that the lookup declares.

    Args:
        lookup: as declared.
        pipe: that declares it.
        limits: of the reading.

    Raises:
        Misconfigured: the file is not allowed, or the file or table is missing, malformed, too large, or lacks a
            column; the message says which and where.
    """
    if lookup.file is not None and (refusal := pipe_limits().refuse_lookup(lookup.file)):
        raise Misconfigured(refusal)
    source = _source(lookup)
    columns = {*lookup.key.values(), *lookup.fields.values()}
    try:
        if lookup.sql:
            all_rows = _sql(lookup.sql, columns, pipe, limits.query_s)
        else:
            all_rows = _file(Path(str(lookup.file)), columns, source, limits.memory_bytes)
        rows = list(_within(limits.memory_bytes, all_rows))
    except FileNotFoundError:
        raise Misconfigured(f"{source} does not exist") from None
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{source} is not UTF-8: {error.reason} at byte {error.start}") from None
    except ImportError as error:
        raise Misconfigured(f"{source} needs a database driver that is not installed here: {error}") from None
    except (OSError, ValueError, csv.Error, ArrowException, sqlalchemy.exc.SQLAlchemyError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Misconfigured(f"{source} cannot be read: {first_line}") from None
    if rows:
        _require(columns, rows[0], source)
    return rows


def _source(lookup: Lookup) -> str:
    return "the query of the SQL table" if lookup.sql else f"the file {lookup.file}"


def _require(required_columns: set[str], columns: Iterable[str], source: str) -> None:
    existing_columns = set(columns)
    if missing_columns := sorted(required_columns - existing_columns):
        existing_text = ", ".join(sorted(map(str, existing_columns)))
        raise Misconfigured(f"{source} has no column {', '.join(missing_columns)}; it has {existing_text}")


def _within(most_bytes: int, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows.

    Raises:
        ValueError: they need more memory.
    """
    needed_bytes = 0
    for row in rows:
        needed_bytes += _ROW_BYTES + sum(map(sys.getsizeof, row.values()))
        if needed_bytes > most_bytes:
            raise _too_large(most_bytes)
        yield row


def _too_large(most_bytes: int) -> ValueError:
    return ValueError(
        f"it needs more than {most_bytes / 1e6:,.0f} MB of memory; leave rows or columns out, or have the operator "
        "raise HIFI_ENRICH_LOOKUP_MB"
    )


def _file(
    path: Path, required_columns: set[str], source: str, most_bytes: int
) -> Iterator[Mapping[str, Any]]:
    if path.stat().st_size > most_bytes:
        raise _too_large(most_bytes)
    match path.suffix:
        case ".csv":
            return _csv(path, required_columns, source)
        case ".parquet":
            column_names = pq.read_schema(path).names
            _require(required_columns, column_names, source)
            _refuse_twice(required_columns, column_names)
            return _parquet(path, sorted(required_columns))
        case ".json":
            return _json(path)
        case _:
            return _lines(path)


def _refuse_twice(required_columns: set[str], names: Sequence[str]) -> None:
    """Raises ValueError if a file or query has a column twice that the lookup declares."""
    for name in sorted(required_columns):
        if names.count(name) > 1:
            raise ValueError(f"it has the column {name} twice")


def _parquet(path: Path, columns: list[str]) -> Iterator[Mapping[str, Any]]:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
            yield from batch.to_pylist()


def _csv(path: Path, required_columns: set[str], source: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a CSV file: every value is text, an empty one is null."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if not reader.fieldnames:
            raise ValueError("it is empty; its first line must name the columns")
        _require(required_columns, reader.fieldnames, source)
        _refuse_twice(required_columns, reader.fieldnames)
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num} does not have {len(reader.fieldnames)} values")
            yield {name: value or None for name, value in row.items()}


def _json(path: Path) -> Iterator[Mapping[str, Any]]:
    """A JSON array of objects, or JSON lines."""
    content = without_bom(path.read_bytes())
    if content.lstrip()[:1] != b"[":
        return _objects(content.splitlines())
    try:
        check_utf8(content)
        elements = array_elements(content)
    except InvalidEvent as error:
        raise ValueError(error.detail) from None
    if not all(element.startswith(b"{") for element in elements):
        raise ValueError("it must be an array of objects")
    return (_row(element, f"the object {number}") for number, element in enumerate(elements, 1))


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    return _objects(without_bom(path.read_bytes()).splitlines())


def _objects(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            check_utf8(line)
            text = value_slice(line)
        except InvalidEvent as error:
            raise ValueError(f"line {number} is not JSON: {error.detail}") from None
        if not text.startswith(b"{"):
            raise ValueError(f"line {number} is not a JSON object")
        yield _row(text, f"line {number}")


def _row(text: bytes, location: str) -> dict[str, Any]:
    """The members of an object in UTF-8: numbers, objects and lists as text as they are written."""
    try:
        return {name: _value(bytes(member)) for name, member in _OBJECT.decode(text).items()}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{location} is not JSON: {error}") from None


def _value(text: bytes) -> Any:
    first_byte = text[:1]
    if first_byte in b"{[":
        return msgspec.json.format(text, indent=-1).decode()
    return _ANY.decode(text) if first_byte in b'"tfn' else text.decode()


def _sql(
    table: SqlTable, required_columns: set[str], pipe: str, query_s: float
) -> Iterator[Mapping[str, Any]]:
    url = _url(table.url.read())
    url.get_dialect().import_dbapi()  # before the name is resolved: the driver may not be installed
    engine = sqlalchemy.create_engine(
        url, poolclass=sqlalchemy.NullPool, connect_args=_connection_arguments(url, pipe)
    )
    try:
        with engine.connect() as connection:
            _limit(connection, query_s)
            query = sqlalchemy.text(table.query)
            result = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
            _refuse_twice(required_columns, list(result.keys()))
            yield from (dict(row) for row in result.mappings())
    finally:
        engine.dispose()


def _url(text: str) -> sqlalchemy.URL:
    """The parts of a URL, none of which is a part of its password.

    Raises:
        ValueError: it is none, or its password is not percent-encoded; the message does not quote it.
    """
    try:
        url = sqlalchemy.make_url(text)
    except (ValueError, sqlalchemy.exc.ArgumentError):
        raise _not_a_url() from None
    if url.host:
        other_options = [str(value) for name, value in url.query.items() if name.lower() not in _OPTIONS]
        if any("@" in part for part in (url.host, url.database or "", *other_options)):
            raise _not_a_url()
    return url


def _not_a_url() -> ValueError:
    return ValueError(
        "the secret `url` is not a URL; write DIALECT+DRIVER://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode "
        "user and password, such as %40 for @"
    )


def _limit(connection: sqlalchemy.Connection, query_s: float) -> None:
    """Limit the time of the query that follows, and have SQLite, which is this process, do nothing but read tables."""
    backend = connection.engine.url.get_backend_name()
    if backend == "postgresql":
        connection.exec_driver_sql(f"SET statement_timeout = {int(query_s * 1000)}")
    if backend != "sqlite":
        return
    file = connection.connection.driver_connection
    assert isinstance(file, sqlite3.Connection)
    ends_s = monotonic_s() + query_s
    file.set_progress_handler(lambda: monotonic_s() > ends_s, _STEPS)
    file.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY)


def _connection_arguments(url: sqlalchemy.URL, pipe: str) -> dict[str, str]:
    """Further arguments of a connection: of libpq the judged addresses, so that it resolves no name.

    Raises:
        ValueError: it has an option that may name another server or a file.
        EgressRefused: the server may not be connected to, or the file may not be read.
    """
    _require_options_allowed(url, pipe)
    if url.get_backend_name() == "sqlite":
        if reason := pipe_limits().refuse_lookup(Path(url.database or "")):
            raise EgressRefused(reason)
        return {}
    pipe_egress, port = egress(pipe), url.port or _PORTS.get(url.get_backend_name(), 0)
    if not url.host:  # a socket of this machine
        if reason := pipe_egress.refusal(EgressKind.DATABASE, "localhost", "127.0.0.1", port):
            raise EgressRefused(reason)
        return {}
    if not url.get_driver_name().startswith("psycopg"):
        pipe_egress.require_fixed(EgressKind.DATABASE, url.host, port)
        return {}
    return pinned(url.host, port, pipe_egress.addresses_blocking(EgressKind.DATABASE, url.host, port))


def _require_options_allowed(url: sqlalchemy.URL, pipe: str) -> None:
    """Check that the options of a URL name no other server, and no file but authorities that the pipe may name.

    Raises:
        ValueError: it has an option that may name another server or a file.
        EgressRefused: a file may not be read.
    """
    if unlisted_options := sorted(set(map(str.lower, url.query)) - _OPTIONS):
        raise ValueError(
            f"the URL has the option {', '.join(unlisted_options)}; allowed are {', '.join(sorted(_OPTIONS))}"
        )
    for name, value in url.query.items():
        for file in [value] if isinstance(value, str) else value:
            if name.lower() not in _CERTIFICATES or file == _AUTHORITIES_OF_THE_SYSTEM:
                continue
            if reason := pipe_limits().refuse_certificates(Path(file), pipe):
                raise EgressRefused(f"the option {name} of the URL is not allowed: {reason}")
