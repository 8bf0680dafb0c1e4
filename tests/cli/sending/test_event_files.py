import io

import orjson
import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.event_files import FileEvent, FileFormat, UnreadableEvent, read_events


def read(content, name="-", file_format=FileFormat.AUTO, **options):
    source = io.BufferedReader(io.BytesIO(content))
    return list(read_events(source, name, file_format, **options))


def told(events):
    return [(event.number, event.data if isinstance(event, FileEvent) else str(event)) for event in events]


def test_json_lines_are_kept_byte_for_byte_with_their_line_numbers():
    content = b'{"a": 1.50}\n\n  {"b":"\xc3\xa9"}  \r\n'
    assert told(read(content, "x.ndjson")) == [(1, b'{"a": 1.50}'), (3, b'{"b":"\xc3\xa9"}')]


def test_bad_lines_are_reported_and_the_others_are_sent():
    events = read(b'{"a":1}\nnope\n[1]\n{"a":2}', "x.jsonl")
    assert [type(event) for event in events] == [FileEvent, UnreadableEvent, UnreadableEvent, FileEvent]
    assert "not JSON" in str(events[1])
    assert str(events[2]) == "not a JSON object"
    assert [event.number for event in events] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'[{"a":1},{"a":2}]', [(1, b'{"a":1}'), (2, b'{"a":2}')]),
        (b'{\n "a": 1\n}', [(1, b'{"a":1}')]),
        (b'{"a":1}\n{"a":2}\n', [(1, b'{"a":1}'), (2, b'{"a":2}')]),
        (b'[{"a":1}, 7]', [(1, b'{"a":1}'), (2, "not a JSON object")]),
        (b"[]", []),
    ],
)
def test_a_json_file_is_an_array_an_object_or_lines(content, expected):
    assert told(read(content, "x.json")) == expected


def test_the_format_of_standard_input_is_detected_by_its_first_character():
    assert told(read(b' [{"a":1}]')) == [(1, b'{"a":1}')]
    assert told(read(b'{"a":1}\n')) == [(1, b'{"a":1}')]
    assert told(read(b"a,b\n1,2\n")) == [(2, b'{"a":"1","b":"2"}')]


def test_csv_values_are_text_unless_types_are_wanted():
    content = b"\xef\xbb\xbfid,zip,paid,note,amount\n7,00123,true,,1.5\n"
    assert orjson.loads(read(content, "x.csv")[0].data) == {
        "id": "7", "zip": "00123", "paid": "true", "note": "", "amount": "1.5"
    }  # fmt: skip
    assert orjson.loads(read(content, "x.csv", types=True)[0].data) == {
        "id": 7, "zip": "00123", "paid": True, "note": None, "amount": 1.5
    }  # fmt: skip


def test_csv_rows_of_another_length_are_reported_with_their_line():
    events = read(b'a,b\n"x\ny",2\n1\n3,4\n', "x.csv")
    assert told(events)[0] == (3, b'{"a":"x\\ny","b":"2"}')
    assert told(events)[1] == (4, "1 values, but the header has 2 columns")
    assert told(events)[2] == (5, b'{"a":"3","b":"4"}')


@pytest.mark.parametrize("content", [b"", b"a,a\n1,2\n", b'a,b\n"1,2\n'])
def test_a_file_that_is_not_csv_is_refused(content):
    with pytest.raises(Misconfigured):
        read(content, "x.csv")


def test_an_invalid_json_file_is_refused():
    with pytest.raises(Misconfigured, match=r"x\.json is not JSON"):
        read(b"[{]", "x.json")
