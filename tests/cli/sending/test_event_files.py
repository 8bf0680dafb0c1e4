import io
import json
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending import event_files, json_array
from hifi_cli.sending.event_files import FileEvent, FileFormat, UnreadableEvent, read_events

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def read(content, name="-", file_format=FileFormat.AUTO, **options):
    source: Any = io.BufferedReader(io.BytesIO(content))
    return list(read_events(source, name, file_format, **options))


def numbered_data(events):
    return [(event.number, event.data if isinstance(event, FileEvent) else str(event)) for event in events]


def test_json_lines_are_kept_byte_for_byte_with_their_line_numbers():
    content = b'{"a": 1.50}\n\n  {"b":"\xc3\xa9"}  \r\n'
    assert numbered_data(read(content, "x.ndjson")) == [(1, b'{"a": 1.50}'), (3, b'{"b":"\xc3\xa9"}')]


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
    assert numbered_data(read(content, "x.json")) == expected


@pytest.mark.parametrize(
    ("content", "expected", "problem"),
    [
        (b'[{"a":1},{"a":tru},{"a":2}]', [1, "1:", 3], None),
        (b'[{"a":1},,{"a":"\\u12"},{"a":"]}"}]', [1, "1:", "1:", 4], None),
        (b'[{"a":1},{"a":"\xff"},{"a":2}] \n', [1, "1:", 3], None),
        (b'\xef\xbb\xbf [{"a":1},{"a":[1}]', [1], "a bracket } does not match at byte 20"),
        (b'[{"a":1},{"a":2}', [1], "the array does not end at byte 16"),
        (b'[{"a":1},{"a":"2]', [1], "a string does not end at byte 14"),
        (b'[{"a":1}] {"a":2}', [1], "the array has ended, but more follows at byte 10"),
    ],
)
def test_a_bad_item_costs_itself_and_where_none_begins_what_was_before_is_sent(content, expected, problem):
    source: Any = io.BufferedReader(io.BytesIO(content))
    events: list[FileEvent | UnreadableEvent] = []
    if problem is None:
        events += read_events(source, "x.json", FileFormat.AUTO)
    else:
        with pytest.raises(
            Misconfigured, match=f"x.json is not JSON: {problem}; the events before it are sent"
        ):
            events.extend(read_events(source, "x.json", FileFormat.AUTO))
    unreadable_events = [event for event in events if isinstance(event, UnreadableEvent)]
    assert [event.number for event in events if isinstance(event, FileEvent)] == [
        number for number in expected if isinstance(number, int)
    ]
    assert len(unreadable_events) == sum(isinstance(number, str) for number in expected)
    assert all("the item at byte" in str(event) for event in unreadable_events)


_LARGE_ARRAY = """
import io, itertools, resource
from hifi_cli.sending.event_files import FileFormat, read_events

class Array(io.RawIOBase):
    def __init__(self):
        item = b'{"n": 1.10, "text": "' + b"x" * 1000 + b'\\\\", "list": [1, {}]}'
        self.parts = itertools.chain([b"[" + item], itertools.repeat(b",\\n" + item, 99_999), [b"]"])
        self.left = b""
    def readable(self):
        return True
    def readinto(self, buffer):
        while len(self.left) < len(buffer) and (part := next(self.parts, None)) is not None:
            self.left += part
        data, self.left = self.left[:len(buffer)], self.left[len(buffer):]
        buffer[:len(data)] = data
        return len(data)

pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + 48 * 1024 * 1024
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(sum(1 for event in read_events(io.BufferedReader(Array()), "x.json", FileFormat.AUTO) if event.data))
"""


def test_an_array_of_100_megabytes_takes_memory_for_an_item_only():
    program = _LARGE_ARRAY.replace("\\\\", "\\")
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "100000"


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=8), st.integers(1, 40))
def test_an_array_gives_the_events_that_its_items_as_lines_give(events, chunk_bytes):
    event_texts = [json.dumps(event, ensure_ascii=bool(chunk_bytes % 2)) for event in events]
    array_text = f" [ {' , '.join(event_texts)} ] ".encode("utf-8", "surrogatepass")
    lines_text = "\n".join(event_texts).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK_BYTES", chunk_bytes)
        array_events = [event for event in read(array_text, "x.json") if isinstance(event, FileEvent)]
    line_events = [event for event in read(lines_text, "x.ndjson") if isinstance(event, FileEvent)]
    assert [json.loads(event.data) for event in array_events] == [
        json.loads(event.data) for event in line_events
    ]
    assert [event.number for event in array_events] == [event.number for event in line_events]


def test_items_of_an_array_keep_digits_and_repeated_names_in_their_order():
    text = b'{"n":1.10,"big":18446744073709551616,"e":1e400,"a":1,"a":2}'
    assert numbered_data(read(b"[" + text + b",\n" + text + b"]", "x.json")) == [(1, text), (2, text)]


def test_the_format_of_standard_input_is_detected_by_its_first_character():
    assert numbered_data(read(b' [{"a":1}]')) == [(1, b'{"a":1}')]
    assert numbered_data(read(b'{"a":1}\n')) == [(1, b'{"a":1}')]
    assert numbered_data(read(b"a,b\n1,2\n")) == [(2, b'{"a":"1","b":"2"}')]


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
    assert numbered_data(events)[0] == (3, b'{"a":"x\\ny","b":"2"}')
    assert numbered_data(events)[1] == (4, "1 values, but the header has 2 columns")
    assert numbered_data(events)[2] == (5, b'{"a":"3","b":"4"}')


@pytest.mark.parametrize("content", [b"", b"a,a\n1,2\n", b'a,b\n"1,2\n'])
def test_a_file_that_is_not_csv_is_refused(content):
    with pytest.raises(Misconfigured):
        read(content, "x.csv")


def test_an_invalid_json_file_is_refused():
    with pytest.raises(Misconfigured, match=r"x\.json is not JSON"):
        read(b"[{]", "x.json")


DIGITS = '{"n":18446744073709551616,"price":1.10,"e":1E5,"deep":[[0.10000000000000000001]]}'


@pytest.mark.parametrize(
    "content",
    [
        DIGITS,
        f"[{DIGITS}]",
        f"[\n  {DIGITS}\n]",
        DIGITS.replace(",", ",\r\n "),
        f"\ufeff{DIGITS}",
        f"\ufeff[{DIGITS}]",
    ],
)
def test_numbers_keep_their_digits_in_every_format(content):
    for name in ("x.json", "-"):
        if name == "-" and "\n" in content and not content.startswith("["):
            continue  # an object over several lines is one only in a file named .json
        assert numbered_data(read(content.encode(), name)) == [(1, DIGITS.encode())]


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.integers(-(10**40), 10**40)
            | st.decimals(allow_nan=False, allow_infinity=False, places=20)
            | st.text(),
            max_size=4,
        ),
        max_size=5,
    ),
    st.sampled_from([None, 2]),
)
def test_events_of_an_array_are_what_the_file_says(events, indent):
    content = json.dumps(events, indent=indent, default=Number, ensure_ascii=False)
    read_events = read(content.encode("utf-8", "surrogatepass"), "x.json")
    assert [exactly(event.data) for event in read_events] == exactly(content)
    assert all(b"\n" not in event.data for event in read_events)


class Number(float):
    """A decimal that `json.dumps` writes with all digits."""

    def __init__(self, number):
        self._text = format(number, "f")

    def __repr__(self):
        return self._text


def exactly(text):
    """The value of a JSON text whose numbers are texts."""
    return json.loads(
        text, parse_int=lambda digits: ("number", digits), parse_float=lambda digits: ("number", digits)
    )


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("18446744073709551616", "18446744073709551616"),
        ("1.10", "1.10"),
        ("-0.0", "-0.0"),
        (" 7 ", "7"),
        ("1e5", "1e5"),
        ("1e999", '"1e999"'),
        ("9" * 400, f'"{"9" * 400}"'),
        ("007", '"007"'),
        ("1_000", '"1_000"'),
        ("+1", '"+1"'),
        (".5", '".5"'),
        ("NaN", '"NaN"'),
        ("٣", '"٣"'),
    ],
)
def test_typed_csv_numbers_keep_their_digits(value, data):
    (event,) = read(f"n\n{value}\n".encode(), "x.csv", types=True)
    assert event.data.decode() == f'{{"n":{data}}}'


def test_large_cells_are_sent_and_a_bad_row_costs_no_other():
    large = "x" * 200_000
    events = read(f'a,b\n1,2\n{large},3\n"q"q,4\n5,6\n'.encode(), "x.csv")
    assert [event.number for event in events] == [2, 3, 4, 5]
    assert orjson.loads(events[1].data) == {"a": large, "b": "3"}
    assert "not valid CSV" in str(events[2])
    assert events[3].data == b'{"a":"5","b":"6"}'


def test_a_stray_quotation_mark_costs_its_line_and_no_other():
    stray_problem = "not valid CSV: a quotation mark does not end where the value does"
    assert numbered_data(read(b'a,b\n1,"x\n2,y\n3,"z\n4,w\n', "x.csv")) == [
        (2, stray_problem),
        (3, b'{"a":"2","b":"y"}'),
        (4, stray_problem),
        (5, b'{"a":"4","b":"w"}'),
    ]
    assert numbered_data(read(b'a,b\n"1,2\n3,4\n5",6,7\n8,9\n', "x.csv")) == [
        (2, stray_problem),
        (3, b'{"a":"3","b":"4"}'),
        (4, "3 values, but the header has 2 columns"),
        (5, b'{"a":"8","b":"9"}'),
    ]


def test_rows_behind_a_stray_quotation_mark_are_read_however_many_they_are(monkeypatch):
    monkeypatch.setattr(event_files, "MAX_EVENT_BYTES", 1000)
    lines = [b"a,b", b'1,"x', *(b"%d,y" % number for number in range(2, 1000))]
    events = read(b"\n".join(lines), "x.csv")
    assert [event.number for event in events] == list(range(2, 1001))
    assert [event.number for event in events if isinstance(event, UnreadableEvent)] == [2]
    row = b'1,"' + b"x" * 700 + b'","' + b"x" * 700 + b'"\n'
    events = read(b"a,b,c\n1,2,3\n" + row + b"4,5,6\n", "x.csv")
    assert [(event.number, type(event)) for event in events] == [
        (2, FileEvent),
        (3, UnreadableEvent),
        (4, FileEvent),
    ]


def test_of_an_endless_cell_or_line_only_so_much_is_read(monkeypatch):
    monkeypatch.setattr(event_files, "MAX_EVENT_BYTES", 1000)
    source: Any = io.BufferedReader(io.BytesIO(b'a,b\n1,2\n"' + b"x\n" * 5000))
    events = read_events(source, "x.csv", FileFormat.AUTO)
    event = next(events)
    assert isinstance(event, FileEvent)
    assert event.data == b'{"a":"1","b":"2"}'
    with pytest.raises(Misconfigured, match=r"line .*1000 bytes"):
        next(events)
    lines = read(b'{"a":1}\n{"b":"' + b"x" * 5000 + b'"}\n{"c":1}\n', "x.ndjson")
    assert numbered_data(lines)[::2] == [(1, b'{"a":1}'), (3, b'{"c":1}')]
    assert "more than 1000 bytes" in str(lines[1])


@pytest.mark.parametrize("content", [b'[%b,{"a":1}]', b"%b"])
def test_an_item_that_msgspec_reads_but_does_not_format_costs_itself(monkeypatch, content):
    monkeypatch.setattr(
        event_files, "value_slice", bytes
    )  # compiled, it accepts one level more than `format`
    item = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    first_event, *others = read(content.replace(b"%b", item), "x.json")
    assert isinstance(first_event, UnreadableEvent)
    assert str(first_event) == "nested too deeply"
    assert numbered_data(others) in ([], [(2, b'{"a":1}')])


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.ndjson"])
def test_a_file_is_closed_after_its_last_event(name):
    source: Any = io.BufferedReader(io.BytesIO(b'[{"a":1},{"a":2}]'))
    list(read_events(source, name, FileFormat.AUTO))
    assert source.closed
