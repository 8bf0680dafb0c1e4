"""The record format has one meaning, whichever of its forms reads or writes it: Python, compiled, or Spark SQL.

Each form reads the same records: what hifi writes, what an earlier release wrote, what a later one may append, and
what is malformed. Run as a script, this file reads records from standard input with the modules that Python imports.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hifi.record import identity as identity_module
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    HOP,
    IDENTITY,
    IN,
    INDEX,
    MINUTE,
    PIPE,
    POSITION,
    RAW,
    RECEIPT,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    STAMP,
    TO,
    WATCH,
    Headers,
)
from hifi.record.heartbeat import heartbeat_record, is_heartbeat
from hifi.record.hop import (
    HOP_FIELDS,
    Hop,
    hop,
    hop_header,
    split_hop,
    split_hop_unchecked,
    write_enriched_hop,
    write_first_hop,
    write_hop,
    write_stamped_hop,
)
from hifi.record.identity import (
    IDENTITY_FIELDS,
    LAST_ACCEPTED,
    LAST_MINUTE,
    Identity,
    IdentityReader,
    identity,
    identity_header,
    identity_prefix,
    identity_stem,
    seq_text,
    split_identity,
    write_identity,
)
from hifi.record.receipt import (
    RECEIPT_FIELDS,
    pack_receipt,
    parse_source,
    receipt_text,
    request_text,
    source_text,
    split_receipt,
)
from hifi.record.refusal import SourceRefusal, parse_refusal, refusal_header
from hifi.record.source_position import position_header, source_position
from hifi.runtime.errors import NotAnEvent
from hifi.runtime.release import VERSION

Facts: TypeAlias = dict[str, Any]
"""Values that one implementation reads from a record; None: refused."""

GOOD = b"2;flights;7;9;1700000000000000;28333333;00000000000000ff:12"
HOP_ONLY = (HOP, b"1700000000000001;12")

IDENTITIES = [
    GOOD,
    GOOD + b";backfill",
    GOOD + b";",
    GOOD + b";new",
    GOOD + b";a:7",
    GOOD + b";backfill;;0123456789abcdef0123456789abcdef",
    GOOD + b";;;log",
    GOOD + b";backfill;",
    GOOD + b";;",
    GOOD + b";;;",
    GOOD + b";x;;y:z;new:7",
    GOOD + b";;;log;\n",
    GOOD + b";;heartbeat",
    GOOD + b";;heartbeat;log;\n",
    GOOD + b";x;heartbeat",
    GOOD + b";;heartbeats",
    GOOD + b";;heartbeat;\xff",
    GOOD[:-1] + b"x;;heartbeat",
    b"3" + GOOD[1:] + b";;heartbeat",
    GOOD.replace(b";7;", b";;") + b";;heartbeat",
    GOOD + b";;batch;log",
    GOOD + b";backfill;batch",
    GOOD + b";; ",
    GOOD + b";;\x00;log",
    GOOD + b";;event",
    GOOD + b";x;y:z",
    GOOD + b";:;;",
    GOOD + b";\n\r\t\x00",
    GOOD + b"\n",
    GOOD + b";\xff",
    GOOD + ";ü:1".encode(),
    b"2;;0;0;0;0;0000000000000000:0",
    b"2;p\x00q;0;0;0;0;0000000000000000:0",
    b"2;p q:r;0;0;0;0;ABCDEF::        :0",
    b"2;p;000000000000000001;0;0;0;zzzzzzzzzzzzzzzz:000000000000000009",
    b"2;p;0000000000000000001;0;0;0;0000000000000000:0",
    b"2;p;999999999999999999;999999999999999999;253402300799999999;4223371679;ffffffffffffffff:" + b"9" * 18,
    b"2;p;1;1;253402300800000000;1;ffffffffffffffff:1",
    b"2;p;1;1;999999999999999999;1;ffffffffffffffff:1",
    b"2;p;1;1;253402300799999998;1;ffffffffffffffff:1",
    b"2;p;1;1;1;4223371680;ffffffffffffffff:1",
    b"2;p;1;1;1;9999999999;ffffffffffffffff:1",
    b"2;p;1;1;1;04223371679;ffffffffffffffff:1",
    b"2;p;1;1;1;1;ffffffffffffffff:" + b"9" * 19,
    b"2;p;1;1;1;1;ffffffffffffffff:" + b"9" * 20,
    b"2;p;9223372036854775808;1;1;1;ffffffffffffffff:1",
    b"",
    b";",
    b"2",
    b"2;",
    b"2;;;;;;",
    b"1" + GOOD[1:],
    b"3" + GOOD[1:],
    b"02" + GOOD[1:],
    b"2 " + GOOD[1:],
    b" " + GOOD,
    b"\xff" + GOOD,
    GOOD[:-1],
    GOOD[:-2],
    GOOD[:-3],
    GOOD[:-20],
    GOOD + b" ",
    GOOD + b"_0",
    GOOD.replace(b":12", b":+12"),
    GOOD.replace(b":12", b":-1"),
    GOOD.replace(b":12", b":1.5"),
    GOOD.replace(b":12", b":1e3"),
    GOOD.replace(b":12", b":12:13"),
    GOOD.replace(b"ff:12", b"ff12"),
    GOOD.replace(b"00ff:12", b"0ff:12"),
    GOOD.replace(b"00ff:12", b"000ff:12"),
    GOOD.replace(b"flights", "flüge".encode()),
    GOOD.replace(b"flights", b"\xc3"),
    GOOD.replace(b"00ff:", "0üf:".encode()),
    *(GOOD.replace(b";7;", b";" + text + b";") for text in (b"", b"x", b" 7", b"7 ", b"+7", b"-7", b"7_0")),
    *(
        GOOD.replace(b";9;", b";" + text + b";")
        for text in (b"", b"9.0", b"\t9", b"0x9", "९".encode(), b"9L")
    ),
    *(GOOD.replace(b";28333333;", b";" + text + b";") for text in (b"", b"-28333333", b"28333333\n", b"NaN")),
    *(GOOD.replace(b"1700000000000000", text) for text in (b"", b"-1", b"1.7e15", b"1" * 18, b"1" * 19)),
]
HOPS = [
    b"",
    b";",
    b"1",
    b"1;",
    b"1;2",
    b"1;2;",
    b"1;2;crm",
    b"1;2;crm,erp;w1:a,b",
    b"1;2;crm;;",
    b"1;;crm;w1:a;new;",
    b"1;2;;;5",
    b"1;2;crm;w1:a;0;1700000000000",
    b"1;2;crm;;;1700000000000;new;",
    b"1;2;crm;w1:a;;",
    b"1;2;crm;w1:a;x",
    b"1;2;crm;w1:a;-1",
    b"1;2;crm;w1:a;1000000000000000000",
    b"1;2;crm;w1:a;5;5\n",
    b"1;2;crm;w1:a;5;soon;new",
    b"1;2;crm;w1:a;\xff",
    b"1;2;\xc3;",
    "1;2;ü".encode(),
    b"0;0",
    b"999999999999999999;999999999999999999",
    b"1000000000000000000;1",
    b"1;1000000000000000000",
    b" 1",
    b"1 ;2",
    b"-1;2",
    b"+1;2",
    b"1_0;2",
    b"1.5;2",
    b"1;-1",
    b"1;2 ",
    b"1;x",
    b"soon;2",
    b"1\n",
    b"1;2\n",
    b"1;2;crm\n",
    b"1;\n;crm",
]
RECEIPTS = [
    b"",
    b"delivered",
    b"filtered;;enriched:5;;;;;;;;;",
    b"delivered;crm;enriched:5;0;1;200;1;2;;;;",
    b"dead-letter;crm;retry-out:5;3;4;;1;;2;half-open:egest-1;timeout;",
    b"duplicate;;;;;;;;;;;17",
    b"delivered;crm;enriched:5;0;1;200;1;2;;;;;new;",
    b";;;;;;;;;;;;",
    "retry;crm;enriched:5;0;1;;1;;;open:ü;reset;\n".encode(),
]
POSITIONS = [
    b"00000000000000aa;5;kafka/c/orders/id/3",
    b";0;",
    b"run;0317;s",
    b"run;5;sql/a;b/c;d",
    b"run;18446744073709551615;s",
    b"run;18446744073709551616;s",
    b"run;18446744073709551609;s",
    b"run;18446744073699999999;s",
    b"run;18500000000000000000;s",
    b"run;09999999999999999999;s",
    b"run;99999999999999999999;s\n",
    b"run;9999999999999999999;s\n",
    "run;5;sql/tück".encode(),
    b"",
    b"run;5",
    b"run;;s",
    b"run;x;s",
    b"run;-5;s",
    b"run; 5;s",
    b"run;5\n;s",
    b"run;100000000000000000000;s",
]
ATTRIBUTES: Headers = [("ce_id", b"1"), ("ce_type", b"\xff;\x00")]


def listed_records() -> list[Headers]:
    """One record for each header above, each with the others intact, and records whose headers are misplaced."""
    identity_header = (IDENTITY, GOOD)
    records: list[Headers] = [[(IDENTITY, value), HOP_ONLY, *ATTRIBUTES] for value in IDENTITIES]
    records += [[identity_header, (HOP, value), *ATTRIBUTES] for value in HOPS]
    records += [[identity_header, HOP_ONLY, (RECEIPT, value)] for value in RECEIPTS]
    records += [[identity_header, HOP_ONLY, (POSITION, value), *ATTRIBUTES] for value in POSITIONS]
    records += [
        [],
        [identity_header],
        [HOP_ONLY, identity_header],
        [identity_header, ("ce_id", b"1"), HOP_ONLY],
        [("ce_id", b"1"), identity_header, HOP_ONLY],
        [identity_header, HOP_ONLY, ("ce_id", b"1"), (RECEIPT, RECEIPTS[3])],
        [("HIFI", GOOD), ("HIFI_HOP", b"1;2")],
        [("hifi_", GOOD), ("hifi_ho", b"1;2"), ("hifi_receipt_", b"x")],
    ]
    return records


def recorded_records() -> list[Headers]:
    """The records of an earlier release."""
    path = Path(__file__).parents[2] / "releases/format-2.json"
    return [
        [(name, text.encode("ascii")) for name, text in record[2]]
        for partitions in json.loads(path.read_text("utf-8")).values()
        for partition in partitions
        for record in partition
    ]


def drawn_records() -> list[Headers]:
    """Records that Hypothesis makes, nearly always the same."""
    numbers = st.integers(0, 10**18 - 1).map(lambda number: b"%d" % number)
    odd = st.one_of(
        numbers, st.text("0123456789 +-_.:;ex\n", max_size=20).map(str.encode), st.binary(max_size=6)
    )
    names = st.text("abc-:, \x00\x7f", max_size=8).map(str.encode)
    epochs = st.text("0123456789abcdef:", min_size=15, max_size=17).map(str.encode)
    seqs = st.tuples(epochs, st.sampled_from([b":", b""]), odd).map(b"".join)
    good_seqs = st.tuples(st.binary(min_size=8, max_size=8).map(bytes.hex).map(str.encode), numbers).map(
        b":".join
    )
    appended = st.one_of(
        st.lists(st.one_of(st.just(b"backfill"), odd), max_size=3),
        st.tuples(st.sampled_from([b"backfill", b""]), st.just(b""), names).map(list),
    )
    accepted = st.integers(0, int(LAST_ACCEPTED)).map(lambda number: b"%d" % number)
    minutes = st.integers(0, int(LAST_MINUTE)).map(lambda number: b"%d" % number)
    identities = st.tuples(names, numbers, numbers, accepted, minutes, good_seqs)
    altered = st.tuples(names, odd, odd, odd, odd, seqs)
    any_identity = st.tuples(st.one_of(identities, altered), appended).map(
        lambda drawn: b";".join([b"2", *drawn[0], *drawn[1]])
    )
    positions = st.one_of(numbers, st.just(b""))
    hops = st.one_of(
        st.lists(st.one_of(odd, names), min_size=1, max_size=7).map(b";".join),
        st.tuples(numbers, positions, names, names, positions, positions).map(b";".join),
    )
    texts = st.text("abc;:1\n ü", max_size=12).map(str.encode)
    third = st.one_of(
        st.tuples(st.just(RECEIPT), texts),
        st.tuples(st.just(POSITION), st.tuples(names, odd, texts).map(b";".join).filter(is_utf8)),
        st.tuples(st.just("ce_id"), texts),
    )
    records: list[Headers] = []

    @settings(max_examples=600, derandomize=True, database=None)
    @given(any_identity, hops, third)
    def draw(identity_value: bytes, hop_value: bytes, last: tuple[str, bytes]) -> None:
        records.append([(IDENTITY, identity_value), (HOP, hop_value), last])

    draw()
    return records


def is_utf8(value: bytes) -> bool:
    """Whether SQL can show a text as it is: the source of a position and a receipt are not checked."""
    return value.decode("utf-8", "replace").encode() == value


RECORDS = [*listed_records(), *recorded_records(), *drawn_records()]


def read_in_python(headers: Headers) -> Facts:
    """Values that the Python decoders read from a record, compiled or not."""
    record_fields: Facts = dict.fromkeys(("identity", "values", "hop", "hop_values", "receipt", "position"))
    record_fields["heartbeat"] = is_heartbeat(headers)
    try:
        identity_texts, event = split_identity(identity_header(headers)), identity(headers)
        record_fields |= {
            "identity": decoded_texts(identity_texts),
            "values": [*event[:-1], event.seq.decode()],
        }
    except NotAnEvent:
        with pytest.raises(NotAnEvent):
            identity(headers)
    try:
        identity_texts, hop_values = split_hop(hop_header(headers)), hop(headers)
        assert split_hop_unchecked(headers) == identity_texts
        destinations, watch = (
            None if text is None else text.decode() for text in (hop_values.to, hop_values.watch)
        )
        later_fields = [hop_values.event_index, hop_values.stamp_ms]
        record_fields |= {
            "hop": decoded_texts(identity_texts),
            "hop_values": [hop_values.in_us, hop_values.raw, destinations, watch, *later_fields],
        }
    except NotAnEvent:
        with pytest.raises(NotAnEvent):
            hop(headers)
    with contextlib.suppress(NotAnEvent):
        record_fields["receipt"] = decoded_texts(split_receipt(headers))
    with contextlib.suppress(NotAnEvent):
        position = source_position(headers)
        if position is not None:
            record_fields["position"] = [position.run.decode(), position.position, position.source.decode()]
    return record_fields


def decoded_texts(texts: list[bytes]) -> list[str]:
    return [text.decode() for text in texts]


def encoded(records: list[Headers]) -> str:
    return json.dumps([[(name, value.hex()) for name, value in headers] for headers in records])


def decoded(text: str) -> list[Headers]:
    return [[(name, bytes.fromhex(value)) for name, value in headers] for headers in json.loads(text)]


def read_from_source(records: list[Headers]) -> list[Facts]:
    """Values that the modules read without compilation, in a process of their own."""
    environment = os.environ | {"HIFI_COMPILED": "0"}
    command = [sys.executable, __file__]
    output = subprocess.run(
        command, input=encoded(records), env=environment, capture_output=True, text=True, check=True
    ).stdout
    answer = json.loads(output)
    assert answer["module"].endswith(".py")
    record_fields: list[Facts] = answer["facts"]
    return record_fields


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Any]]:
    """Values that Spark SQL reads from and writes for each record, in one query."""
    from hifi.record import spark_sql
    from hifi.spark.spark_session import local_spark

    schema = f"number int, headers {spark_sql.HEADERS}"
    read_columns = {
        "identity": spark_sql.identity_texts(),
        "hop": spark_sql.hop_texts(),
        "receipt": spark_sql.receipt_texts(),
        "position": spark_sql.position_texts(),
    }
    whole_numbers = {
        **{name: f"cast({spark_sql.identity_field(name)} as bigint)" for name in IDENTITY_FIELDS[1:-1]},
        IN: f"cast({spark_sql.hop_field(IN)} as bigint)",
        RAW: f"coalesce(cast({spark_sql.hop_field(RAW)} as bigint), if(hop is null, null, -1))",
        INDEX: f"coalesce(cast({spark_sql.hop_field(INDEX)} as bigint), if(hop is null, null, 0))",
        STAMP: f"cast({spark_sql.hop_field(STAMP)} as bigint)",
    }
    texts = {
        **{name: spark_sql.identity_field(name) for name in (PIPE, SEQ)},
        **{name: spark_sql.hop_field(name) for name in (TO, WATCH)},
    }
    known_raw = f"nullif({RAW}, -1)"
    destinations_sql = f"concat({TO}, coalesce(concat(';', {WATCH}), ''))"
    receipt = {name: f"receipt[{index}]" for index, name in enumerate(RECEIPT_FIELDS)}
    written_columns = {
        "first_hop": spark_sql.hop_header(IN),
        "other_hop": spark_sql.hop_header(IN, known_raw),
        "enriched_hop": spark_sql.hop_header(IN, known_raw, destinations_sql),
        "stamped_hop": spark_sql.hop_header(IN, known_raw, spark_sql.with_index_and_stamp(destinations_sql)),
        "whole_receipt": spark_sql.receipt_header(receipt),
        "short_receipt": spark_sql.receipt_header({"hifi_outcome": "'delivered'", "hifi_source": "source"}),
        "first_ce_id": f"cast({spark_sql.header_text('ce_id')} as binary)",
    }
    with local_spark() as spark:
        frame = spark.createDataFrame(list(enumerate(RECORDS)), schema).coalesce(1)
        for columns in (
            read_columns,
            whole_numbers | texts,
            {
                "source": spark_sql.source_text("enriched", "number"),
                "is_event": "identity is not null and hop is not null",
            },
            {"heartbeat": f"coalesce({spark_sql.is_heartbeat()}, false)"},
        ):
            frame = frame.selectExpr("*", *(f"{sql} as `{name}`" for name, sql in columns.items()))
        frame = frame.selectExpr("*", *(f"{sql} as `{name}`" for name, sql in written_columns.items()))
        yield sorted(frame.collect(), key=lambda row: row.number)


def read_in_sql(row: Any) -> Facts:
    """Values that Spark SQL reads from a record, in the shape of `read_in_python`."""
    identity_names = (PIPE, REVISION, REVISION_OFFSET, ACCEPTED, MINUTE, SEQ)
    receipt = row.receipt
    return {
        "identity": row.identity,
        "values": None if row.identity is None else [row[name] for name in identity_names],
        "hop": row.hop,
        "hop_values": None if row.hop is None else [row[name] for name in HOP_FIELDS],
        "receipt": None if receipt is None else receipt + [""] * (len(RECEIPT_FIELDS) - len(receipt)),
        "position": row.position and [row.position[0], int(row.position[1]), row.position[2]],
        "heartbeat": row.heartbeat,
    }


def test_the_records_are_of_all_kinds() -> None:
    field_sets = [read_in_python(headers) for headers in RECORDS]
    for name in ("identity", "hop", "receipt", "position"):
        refused_count = sum(record_fields[name] is None for record_fields in field_sets)
        assert 50 < refused_count < len(field_sets) - 20, name
    assert sum(len(record_fields["identity"] or ()) > 7 for record_fields in field_sets) > 20
    assert sum(record_fields["heartbeat"] for record_fields in field_sets) == 3


def test_a_time_beyond_the_year_9999_and_a_position_beyond_64_bits_are_no_events() -> None:
    last_identity = GOOD.replace(b"1700000000000000", LAST_ACCEPTED).replace(b"28333333", LAST_MINUTE)
    assert identity([(IDENTITY, last_identity)]).accepted_us == int(LAST_ACCEPTED)
    reader = IdentityReader()
    reader.read([(IDENTITY, last_identity)])
    for number in (LAST_ACCEPTED, LAST_MINUTE):
        headers = [(IDENTITY, last_identity.replace(number, b"%d" % (int(number) + 1)))]
        with pytest.raises(NotAnEvent, match="malformed"):
            identity(headers)
        with pytest.raises(NotAnEvent, match="malformed"):
            reader.read(headers)
    with pytest.raises(NotAnEvent, match=POSITION):
        source_position([(IDENTITY, GOOD), HOP_ONLY, position_header(b"run", 2**64, b"s")])


@pytest.mark.parametrize("kind", ["heartbeat", "batch", "event", "0", " "])
def test_a_record_of_an_unknown_kind_is_no_event(kind: str) -> None:
    header = (IDENTITY, GOOD + f";;{kind}".encode())
    with pytest.raises(NotAnEvent, match="kind"):
        identity([header])
    with pytest.raises(NotAnEvent, match="kind"):
        IdentityReader().read([header])


def test_the_fields_for_later_cost_nothing_where_they_are_empty() -> None:
    event = identity_stem(identity_prefix("flights", 7, 9, 1700000000000000), 28333333, 255)
    assert write_identity(event, 12)[1] == GOOD
    assert write_identity(event, 12, backfill=True)[1] == GOOD + b";backfill"
    assert write_enriched_hop(1, 2, b"crm")[1] == b"1;2;crm"


def test_a_stamp_is_read_as_it_was_written() -> None:
    assert hop([HOP_ONLY, write_stamped_hop(1, 2, 3)]) == Hop(1, 2, b"", b"", 0, 3)
    assert write_stamped_hop(1, 2, None) == write_hop(1, 2)


@pytest.mark.parametrize(("raw", "stamp_ms"), [(-1, None), (0, None), (7, 1700000000000)])
def test_a_heartbeat_is_recognized_and_is_no_event(raw: int, stamp_ms: int | None) -> None:
    headers = heartbeat_record("flights", 1700000000000000, raw, stamp_ms).headers
    assert is_heartbeat(headers)
    assert (hop(headers).raw, hop(headers).stamp_ms) == (raw, stamp_ms)
    assert fields(headers)[PIPE] == b"flights"
    with pytest.raises(NotAnEvent, match="kind"):
        identity(headers)
    assert headers != heartbeat_record("flights", 1700000000000001, raw, stamp_ms).headers


def test_compiled_modules_read_what_their_sources_read() -> None:
    """In this process they are compiled if `test_this_environment_uses_what_make_setup_compiled` passes."""
    for headers, compiled_fields, source_fields in zip(
        RECORDS, map(read_in_python, RECORDS), read_from_source(RECORDS), strict=True
    ):
        assert compiled_fields == source_fields, headers


def test_spark_sql_reads_what_python_reads(rows: list[Any]) -> None:
    for headers, row in zip(RECORDS, rows, strict=True):
        assert read_in_sql(row) == read_in_python(headers), headers
        assert (row.first_ce_id and bytes(row.first_ce_id)) == dict(reversed(headers)).get("ce_id"), headers


def test_what_spark_sql_writes_is_read_as_what_it_was(rows: list[Any]) -> None:
    for headers, row in zip(RECORDS, rows, strict=True):
        record_fields = read_in_python(headers)
        if record_fields["hop"] is not None:
            in_us, raw, destinations, watch, *_ = record_fields["hop_values"]
            assert hop([headers[0], header(row.first_hop)]) == Hop(in_us)
            assert hop([headers[0], header(row.other_hop)]) == Hop(in_us, raw)
            assert header(row.other_hop) == write_hop(in_us, raw)
            if destinations is not None:
                enriched_hop = header(row.enriched_hop)
                sent_on = None if watch is None else watch.encode()
                assert hop([headers[0], enriched_hop]) == Hop(in_us, raw, destinations.encode(), sent_on)
                written = hop([headers[0], header(row.stamped_hop)])._replace(watch=None)
                assert written == hop(headers)._replace(watch=None)
                assert (hop([headers[0], header(row.stamped_hop)]).watch or b"") == (sent_on or b"")
                assert sent_on is not None or enriched_hop == write_enriched_hop(
                    in_us, raw, destinations.encode()
                )
        if record_fields["receipt"] is not None and row.receipt[len(RECEIPT_FIELDS) - 1 :]:
            name, value = header(row.whole_receipt)
            assert (name, value.split(b";")) == (RECEIPT, headers[2][1].split(b";")[: len(RECEIPT_FIELDS)])
        name, value = header(row.short_receipt)
        source = source_text(b"enriched", row.number)
        assert (name, value) == (RECEIPT, pack_receipt({"hifi_outcome": b"delivered", "hifi_source": source}))


def header(written: Any) -> tuple[str, bytes]:
    return written.key, bytes(written.value)


def test_reading_in_a_row_gives_what_reading_each_record_gives() -> None:
    reader = IdentityReader()
    for headers in [*RECORDS, *(record for record in RECORDS for _ in range(2)), *reversed(RECORDS)]:
        try:
            event = identity(headers)
        except NotAnEvent:
            with pytest.raises(NotAnEvent):
                reader.read(headers)
            continue
        reader.read(headers)
        identity_texts = reader.texts
        assert (b"%b:%d" % (reader.epoch, reader.sequence), reader.accepted_us) == (
            b"%b:%d" % (event.seq[:16], int(event.seq[17:])),
            event.accepted_us,
        )
        assert identity_texts[:6] == headers[0][1].split(b";")[:6]
        assert reader.backfill == (headers[0][1].split(b";")[7:8] == [b"backfill"])


def test_a_reader_says_when_more_than_the_sequence_differs() -> None:
    stem = identity_stem(identity_prefix("p", 1, 2, 3), 4, 5)
    reader = IdentityReader()
    written_stems = [(stem, 1, False), (stem, 2, False), (stem, 3, True), (stem, 4, True), (stem, 5, False)]
    written_stems += [(identity_stem(identity_prefix("p", 1, 2, 3), 5, 5), 6, False)]
    differs = [reader.read([write_identity(*arguments)]) for arguments in written_stems]
    assert differs == [True, False, True, False, True, True]


NUMBERS = st.integers(0, 10**18 - 1)
ACCEPTED_US = st.integers(0, int(LAST_ACCEPTED))
MINUTES = st.integers(0, int(LAST_MINUTE))
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)
CODES = st.from_regex(r"[a-z0-9:,-]{0,12}", fullmatch=True).map(str.encode)


@given(NAMES, NUMBERS, NUMBERS, ACCEPTED_US, MINUTES, st.integers(0, 2**64 - 1), NUMBERS, st.booleans())
def test_an_identity_is_read_as_it_was_written(
    pipe: str,
    revision: int,
    revision_offset: int,
    accepted_us: int,
    minute: int,
    epoch: int,
    sequence: int,
    late: bool,
) -> None:
    stem = identity_stem(identity_prefix(pipe, revision, revision_offset, accepted_us), minute, epoch)
    headers = [write_identity(stem, sequence, late)]
    seq = seq_text(epoch, sequence)
    assert identity(headers) == Identity(pipe, revision, revision_offset, accepted_us, minute, seq)
    assert packed(fields(headers)) == headers
    assert (fields(headers).get("hifi_origin") == b"backfill") is late


@given(NUMBERS, st.integers(-1, 10**18 - 1), CODES)
def test_a_hop_is_read_as_it_was_written(in_us: int, raw: int, destinations: bytes) -> None:
    first_header = (IDENTITY, GOOD)
    assert hop([first_header, write_first_hop(in_us)]) == Hop(in_us)
    assert hop([first_header, write_hop(in_us, raw)]) == Hop(in_us, raw)
    assert hop([first_header, write_enriched_hop(in_us, raw, destinations)]) == Hop(in_us, raw, destinations)


@given(CODES, CODES, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 599), NUMBERS, NUMBERS, NUMBERS, CODES, CODES)
def test_a_receipt_is_read_as_it_was_written(
    outcome: bytes,
    destination: bytes,
    offset: int,
    passes: int,
    attempts: int,
    status: int,
    sent_us: int,
    answered_us: int,
    ambiguous: int,
    breaker: bytes,
    reason: bytes,
) -> None:
    text = receipt_text(
        outcome,
        destination,
        b"enriched",
        offset,
        passes,
        attempts,
        request_text(status, sent_us, answered_us),
        ambiguous,
        breaker,
        reason,
    )
    values = dict(
        zip(RECEIPT_FIELDS, split_receipt([(IDENTITY, GOOD), HOP_ONLY, (RECEIPT, text)]), strict=True)
    )
    numbers = [passes, attempts]
    assert [values["hifi_outcome"], values["hifi_destination"]] == [outcome, destination]
    assert parse_source(values["hifi_source"]) == (b"enriched", offset)
    assert [int(values["hifi_pass"]), int(values["hifi_attempt"])] == numbers
    assert values["hifi_status"] == (b"%d" % status if status else b"")
    assert values["hifi_sent"] == (b"%d" % sent_us if sent_us or status else b"")
    assert values["hifi_answered"] == (b"%d" % answered_us if status else b"")
    assert values["hifi_ambiguous"] == (b"%d" % ambiguous if ambiguous else b"")
    assert [values["hifi_breaker"], values["hifi_reason"], values["hifi_first"]] == [breaker, reason, b""]
    assert values["hifi_release"] == VERSION.encode()
    assert pack_receipt(values) == text


@given(CODES, st.integers(0, 2**64 - 1), st.text(max_size=20).map(str.encode))
def test_a_position_is_read_as_it_was_written(run_id: bytes, position: int, source: bytes) -> None:
    headers = [(IDENTITY, GOOD), HOP_ONLY, position_header(run_id, position, source)]
    assert source_position(headers) == (run_id, position, source)


@given(st.from_regex(r"[a-z-]{1,12}", fullmatch=True), st.text(max_size=40))
def test_a_refusal_is_read_as_it_was_written(reason: str, detail: str) -> None:
    name, value = refusal_header(reason, detail)
    assert (name, parse_refusal(value)) == ("hifi_refused", SourceRefusal(reason, detail))


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "module": identity_module.__file__,
                "facts": [read_in_python(headers) for headers in decoded(sys.stdin.read())],
            }
        )
    )
