"""The decoders of what senders, sources and authors of pipes write, each as a function of bytes.

A function returns for what is accepted or refused as documented. Every other exception is a defect.
"""

import io
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import orjson

from hifi.avro.schema import InvalidSchema, read_schema
from hifi.control.principals.audit import Audit
from hifi.control.principals.gate import bearer
from hifi.control.principals.principal import Principals
from hifi.pipe.model import Pipe
from hifi.pipe.source import HttpSource
from hifi.record.cloudevents.event import DecodeLimits
from hifi.record.fields import fields, packed
from hifi.record.headers import IDENTITY, IN
from hifi.record.hop import hop
from hifi.record.identity import identity, with_revision
from hifi.record.receipt import parse_source, split_receipt
from hifi.record.source_position import source_position
from hifi.runtime import exact_json
from hifi.runtime.errors import NotAnEvent, Rejected
from hifi.runtime.http.media_type import is_json
from hifi.runtime.http.problem import Problem
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request
from hifi_ingest.http.write_keys import key_from_header
from hifi_kafka.avro.decode import decode as decode_avro
from hifi_kafka.avro.wire_format import payload, schema_id
from hifi_manage.pipe_text import read_pipe
from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.binary import tolerate_bad_values
from hifi_objects.source.rows.row_format import RowFormat

T = TypeVar("T")
Decoder = Callable[[bytes], None]

_NOW_US: Final = 1_764_000_000_000_000
_LIMITS: Final = DecodeLimits(event_bytes=10_000, batch_events=100, depth=20)
_ROW_BYTES: Final = 10_000
_MOST_ROWS: Final = 100_000
_REFUSALS: Final = {400, 413, 415, 422}
_SOURCES: Final = (
    HttpSource.model_validate({"keys": [{"env": "K"}]}),
    HttpSource.model_validate(
        {"keys": [{"env": "K"}], "id": "a.id", "time": "at", "partition_key": "c", "type": "made"}
    ),
)
_SCHEMAS: Final = tuple(
    read_schema(json.dumps({"type": "record", "name": "r", "fields": described}))
    for described in (
        [
            {"name": "a", "type": "int"},
            {"name": "b", "type": ["null", "string"]},
            {"name": "c", "type": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
        ],
        [
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "y", "type": {"type": "int", "logicalType": "date"}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
            {"name": "f", "type": ["double", "float", "boolean"]},
        ],
        [{"name": "next", "type": ["null", "r"]}, {"name": "v", "type": "long"}],
    )
)


def _finished(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that gives up its turn but waits for nothing."""
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def request(data: bytes) -> None:
    """A request to ingest: its headers a line each, an empty line, its body."""
    head, _, body = data.partition(b"\n\n")
    headers = [
        (name.lower(), value) for name, _, value in (line.partition(b":") for line in head.split(b"\n"))
    ]
    for source in _SOURCES:
        for is_plain in (True, False):
            try:
                events = _finished(
                    decode_request(
                        EventRequest(headers, body, _NOW_US, write_key=b"k"),
                        PipeFormats.of("p", source),
                        _LIMITS,
                        allow_plain_json=is_plain,
                    )
                )
            except Problem as problem:
                assert problem.status in _REFUSALS, problem.status
                assert problem.detail, "a refusal says nothing"
                problem.parts()
                continue
            assert len(events) <= _LIMITS.batch_events
            assert events or exact_json.loads(body) == [], "a body without events is accepted"
            for event in events:
                assert event.id, "an event without id"
                event.id.decode()
                kinds = [value for name, value in event.headers if name == "content-type"]
                if kinds and is_json(kinds[0]) and event.data:
                    exact_json.loads(event.data)


def record(data: bytes) -> None:
    """The headers of a record, `NAME=VALUE` a line each."""
    lines = (line.partition(b"=") for line in data.split(b"\n"))
    headers = [(name.decode("utf-8", "replace"), value) for name, _, value in lines]
    for read_header in (
        identity,
        hop,
        split_receipt,
        source_position,
        lambda them: with_revision(them, 1, 2),
    ):
        try:
            read_header(headers)
        except NotAnEvent as error:
            assert str(error)
        except (IndexError, ValueError):
            # It is for headers that another reader has accepted.
            assert read_header.__name__ == "<lambda>"
            try:
                identity(headers)
            except NotAnEvent:
                continue
            raise
    values = fields(headers)
    if headers[0][0] == IDENTITY and IN in values and values.keys().isdisjoint(name for name, _ in headers):
        assert fields(packed(values)) == values
    for value in values.values():
        parse_source(value)


def avro(data: bytes) -> None:
    """A message in Confluent's wire format; the id of its schema chooses among some."""
    try:
        schema = _SCHEMAS[schema_id(data) % len(_SCHEMAS)]
        document = decode_avro(schema, payload(data))
    except Rejected as refusal:
        assert refusal.detail
        return
    orjson.loads(document)


def avro_schema(data: bytes) -> None:
    """A schema, as a registry gives it."""
    try:
        read_schema(data)
    except InvalidSchema as error:
        assert str(error)


def _rows(file_format: str, data: bytes) -> None:
    encodings = {"csv": ("utf-8", "utf-16", "windows-1252"), "ndjson": ("utf-8", "utf-16")}
    for encoding in encodings.get(file_format, ("utf-8",)):
        batches = RowBatches(RowFormat(file_format, ",", encoding, _ROW_BYTES), io.BytesIO(data), "object", 0)
        count, last_number = 0, 0
        while not batches.complete:
            for row in batches.next(1000):
                count += 1
                assert row.number >= last_number, "rows go back"
                last_number = row.number
                assert row.reason or row.data is not None, "a row is neither read nor refused"
                if not row.reason:
                    assert isinstance(exact_json.loads(row.data or b""), dict)
            assert count <= _MOST_ROWS, "rows without end"


def csv(data: bytes) -> None:
    """A CSV file."""
    _rows("csv", data)


def ndjson(data: bytes) -> None:
    """A file of JSON lines."""
    _rows("ndjson", data)


def parquet(data: bytes) -> None:
    """A Parquet file."""
    _rows("parquet", data)


def avro_file(data: bytes) -> None:
    """An Avro object container file."""
    _rows("avro", data)


def pipe(data: bytes) -> None:
    """The text of a pipe, as people send it to manage."""
    declared_pipe, problems = read_pipe(data, {}, coloured=False)
    assert declared_pipe is not None or problems
    for problem in problems:
        assert problem.message
        assert problem.line >= 1
    if declared_pipe is not None and not problems:
        Pipe.model_validate_json(declared_pipe.model_dump_json(by_alias=True))


def principal(data: bytes) -> None:
    """The key of a record of principals, a line feed, its value; the same value as an entry of the audit."""
    key, _, value = data.partition(b"\n")
    principals = Principals()
    try:
        principals.take(key, value, 0)
    except ValueError as error:
        assert str(error)
    for stored_principal in principals.by_name.values():
        orjson.dumps(stored_principal.json())
        principals.of_hash(stored_principal.token_sha256, _NOW_US)
        stored_principal.sees("p")
    try:
        Audit().take(key, value, 0)
    except ValueError as error:
        assert str(error)


def token(data: bytes) -> None:
    """An Authorization header, for ingest and for the consoles."""
    key = key_from_header(data)
    assert key is None or key
    Principals().of_token(bearer(data.decode("latin-1")), _NOW_US)


def digits(data: bytes) -> None:
    """JSON whose numbers keep their digits."""
    try:
        value = exact_json.loads(data)
    except ValueError:
        return
    text = exact_json.dumps(value)
    assert exact_json.loads(text) == value


DECODERS: Final[Mapping[str, Decoder]] = {
    decoder.__name__.replace("_", "-"): decoder
    for decoder in (
        request,
        record,
        avro,
        avro_schema,
        csv,
        ndjson,
        parquet,
        avro_file,
        pipe,
        principal,
        token,
        digits,
    )
}
"""Name of a folder in `corpus` to the decoder of its files."""

tolerate_bad_values()
