"""Types of columns with random values, as texts that PostgreSQL reads."""

import base64
import json
import random
from collections.abc import Callable
from typing import NamedTuple

LONG = 3_000
"""Length from which a value is stored apart from its row."""


class ColumnKind(NamedTuple):
    """A type of columns.

    Attributes:
        sql: type.
        value: makes the text of a value.
        long: makes the text of a value that is stored apart from its row; None: there is none.
        is_key: whether a key may have such a column.
        ambiguous: Debezium writes null for an unchanged long value, so that null is refused without FULL.
    """

    sql: str
    value: Callable[[random.Random], str]
    long: Callable[[random.Random], str] | None = None
    is_key: bool = False
    ambiguous: bool = False


def _word(rng: random.Random) -> str:
    letters = "abcXYZ 0123456789_-\"'\\{},;äß€😀\n\t"
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, 12)))


def _long_word(rng: random.Random) -> str:
    return base64.b64encode(rng.randbytes(LONG)).decode()


def _hex(rng: random.Random, size: int) -> str:
    return "\\x" + rng.randbytes(size).hex()


def _json(rng: random.Random) -> str:
    numbers = ["1.10", "1e3", "18446744073709551616", "0.1", "-0", "1560704964.331047"]
    scalars = ["true", '"abc"', '"123"', '"null"', "5", *numbers]
    scalar = rng.choice(scalars)
    return rng.choice([scalar, f"[{scalar}, null]", f'{{"a": {scalar}, "ü": {json.dumps(_word(rng))}}}'])


def _date(rng: random.Random) -> str:
    usual_date = f"{rng.randint(1700, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return rng.choice([usual_date] * 9 + ["1969-12-31"])


def _moment(rng: random.Random, digits: int) -> str:
    fraction = f".{rng.randrange(10**digits):0{digits}}" if digits else ""
    return f"{_date(rng)} {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}{fraction}"


def _infinite(rng: random.Random, usual_value: str) -> str:
    return rng.choice([usual_value] * 18 + ["infinity", "-infinity"])


def _changed_date(rng: random.Random) -> str:
    return rng.choice([_infinite(rng, _date(rng))] * 9 + ["12024-01-01"])


def _number(rng: random.Random) -> str:
    digits = str(rng.randrange(10 ** rng.randint(1, 40)))
    return rng.choice(
        [
            digits,
            f"-{digits}.{rng.randrange(10**20):020}",
            "NaN",
            "Infinity",
            "-Infinity",
            "0.000",
            "1e-30",
        ]
    )


def _double(rng: random.Random) -> str:
    return rng.choice(
        [
            repr(rng.uniform(-1e9, 1e9)),
            repr(rng.random() * 10 ** rng.randint(-300, 300)),
            "NaN",
            "-Infinity",
            "0",
        ]
    )


def _interval(rng: random.Random) -> str:
    date_text = f"{rng.randint(-9, 9)} years {rng.randint(-11, 11)} mons {rng.randint(-40, 40)} days"
    return f"{date_text} {rng.randint(-99, 99)}.{rng.randrange(10**6):06} secs"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(element: Callable[[random.Random], str], *, nulls: bool = True) -> Callable[[random.Random], str]:
    def value(rng: random.Random) -> str:
        elements = [_quoted(element(rng)) for _ in range(rng.randint(0, 4))]
        if nulls and elements and rng.random() < 0.3:
            elements.append("NULL")
        return "{" + ",".join(elements) + "}"

    return value


def _whole(bits: int) -> Callable[[random.Random], str]:
    return lambda rng: str(
        rng.choice([rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1])
    )


def _hstore(rng: random.Random) -> str:
    return ",".join(
        f"{_quoted(_word(rng) + str(number))}=>{rng.choice(['NULL', _quoted(_word(rng))])}"
        for number in range(3)
    )


def _range(rng: random.Random) -> str:
    low = rng.randrange(1000)
    return rng.choice([f"[{low},{low + 5})", f"({low},)", "empty"])


def _bits(length: int) -> Callable[[random.Random], str]:
    return lambda rng: format(rng.getrandbits(length), f"0{length}b")


def _uuid(rng: random.Random) -> str:
    text = rng.randbytes(16).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


KINDS = [
    ColumnKind("smallint", _whole(16)),
    ColumnKind("integer", _whole(32), is_key=True),
    ColumnKind("bigint", _whole(64), is_key=True),
    ColumnKind("numeric", _number),
    ColumnKind("numeric(20, 4)", lambda made: f"{made.randrange(10**12)}.{made.randrange(10**4):04}", is_key=True),
    ColumnKind("real", lambda made: made.choice(["0.1", "1e30", "-3.25", "NaN", "16777216"])),
    ColumnKind("double precision", _double),
    ColumnKind("money", lambda made: f"{made.randrange(10**9)}.{made.randrange(100):02}"),
    ColumnKind("boolean", lambda made: made.choice(["true", "false"])),
    ColumnKind("text", _word, _long_word, is_key=True),
    ColumnKind("varchar(40)", _word, is_key=True),
    ColumnKind("char(15)", lambda made: _word(made).strip()),
    ColumnKind("citext", _word),
    ColumnKind("bytea", lambda made: _hex(made, made.randint(0, 20)), lambda made: _hex(made, LONG), is_key=True),
    ColumnKind("date", _changed_date),
    ColumnKind("time", lambda made: made.choice([_moment(made, 6).split()[1], "24:00"])),
    ColumnKind("time(3)", lambda made: _moment(made, 3).split()[1]),
    ColumnKind("timestamp", lambda made: _infinite(made, _moment(made, 6)), is_key=True),
    ColumnKind("timestamp(3)", lambda made: _infinite(made, _moment(made, 3))),
    ColumnKind("timestamptz", lambda made: _infinite(made, _moment(made, 6) + made.choice(["+00", "-05", "+05:30"]))),
    ColumnKind("interval", _interval),
    ColumnKind("uuid", _uuid, is_key=True),
    ColumnKind("json", _json, lambda made: json.dumps({"a": _long_word(made)})),
    ColumnKind("jsonb", _json, lambda made: json.dumps({"a": _long_word(made)})),
    ColumnKind("xml", lambda made: f"<a>{made.randrange(99)}</a>"),
    ColumnKind("hstore", _hstore),
    ColumnKind("ltree", lambda made: f"a.b{made.randrange(99)}"),
    ColumnKind("mood", lambda made: made.choice(["sad", "ok", "so, so"])),
    ColumnKind("composite", lambda made: f"({made.randrange(99)},x)"),
    ColumnKind("positive", lambda made: str(made.randint(1, 99))),
    ColumnKind("bit(1)", _bits(1)),
    ColumnKind("bit(12)", _bits(12)),
    ColumnKind("inet", lambda made: f"10.{made.randrange(255)}.0.1/8"),
    ColumnKind("cidr", lambda made: f"10.{made.randrange(255)}.0.0/16"),
    ColumnKind("macaddr", lambda made: f"08:00:2b:01:02:{made.randrange(16):02x}"),
    ColumnKind("point", lambda made: f"({made.uniform(-9, 9)!r},{made.randrange(9)})"),
    ColumnKind("box", lambda made: f"({made.randrange(9)},1),(0,0)"),
    ColumnKind("tsvector", lambda made: f"'a':1 'b{made.randrange(9)}':2"),
    ColumnKind("pg_lsn", lambda made: f"{made.randrange(99):X}/16B3748"),
    ColumnKind("int4range", _range),
    ColumnKind("numrange", _range),
    ColumnKind("daterange", lambda made: f"[2024-01-01,2024-02-{made.randint(1, 28):02})"),
    ColumnKind("int4multirange", lambda made: f"{{[1,2),[5,{made.randint(6, 99)})}}"),
    ColumnKind("text[]", _list(_word), _list(_long_word)),
    ColumnKind("integer[]", _list(_whole(32))),
    ColumnKind("bigint[]", _list(_whole(64))),
    ColumnKind("uuid[]", _list(_uuid)),
    ColumnKind("jsonb[]", _list(_json)),
    ColumnKind("bytea[]", _list(lambda made: _hex(made, made.randint(0, 9)))),
    ColumnKind("date[]", _list(_date)),
    ColumnKind("varchar(40)[]", _list(_word)),
    ColumnKind("numeric[]", _list(lambda made: f"{made.randrange(10**25)}.10"), ambiguous=True),
    ColumnKind("boolean[]", _list(lambda made: made.choice("tf")), ambiguous=True),
    ColumnKind("double precision[]", _list(lambda made: repr(made.uniform(-9, 9))), ambiguous=True),
    ColumnKind("timestamp[]", _list(lambda made: _moment(made, 6)), ambiguous=True),
    ColumnKind("timestamptz[]", _list(lambda made: _moment(made, 6) + "+00"), ambiguous=True),
    ColumnKind("mood[]", _list(lambda made: made.choice(["sad", "ok"]), nulls=False), ambiguous=True),
]  # fmt: skip
TYPES = """
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'so, so');
    CREATE TYPE composite AS (a integer, b text);
    CREATE DOMAIN positive AS integer CHECK (value > 0);
    CREATE DOMAIN digest AS bytea;
"""
