"""Random tables: columns with a kind, and rows of values in a form that no format has for its own."""

import base64
import math
import string
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

Value: TypeAlias = Any
"""int, float, Decimal, bool, str, bytes, datetime in UTC, date, time, list of int or None, or None."""
DIGITS = 38
"""Of a decimal, 18 of them behind the point; Avro and Iceberg have no more."""


class Table(NamedTuple):
    """Name of a column to its kind, and rows with a value for each."""

    columns: dict[str, str]
    rows: list[dict[str, Value]]

    @property
    def values(self) -> int:
        """How many there are."""
        return len(self.columns) * len(self.rows)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
EDGES = st.sampled_from(
    ["", " ", "null", "NaN", "0", "1.10", "true", '"', "\\", "a,b", "ä\n", "\\x00", "2026-07-01"]
)
KINDS: dict[str, st.SearchStrategy[Value]] = {
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    "double": st.floats(width=64) | st.sampled_from([-0.0, 0.0, -1.0]),
    "decimal": st.decimals(-(10**20) + 1, 10**20 - 1, places=18) | st.decimals(-100, 100, places=2),
    "boolean": st.booleans(),
    "text": TEXT | EDGES,
    "bytes": st.binary(max_size=90),
    "timestamp": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
    "date": st.dates(),
    "time": st.times(),
    "list": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
}
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6)


@st.composite
def tables(draw: st.DrawFn, most_rows: int = 12) -> Table:
    """Tables of one to six columns."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    columns = {f"c_{name}": draw(st.sampled_from(sorted(KINDS))) for name in names}
    row = st.fixed_dictionaries({name: st.none() | KINDS[kind] for name, kind in columns.items()})
    return Table(columns, draw(st.lists(row, min_size=1, max_size=most_rows)))


def same(first: Value, second: Value) -> bool:
    """Whether two values are equal to the last bit and of one type; all NaN are one."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return (math.isnan(first) and math.isnan(second)) or struct.pack("d", first) == struct.pack(
            "d", second
        )
    return bool(first == second)


READERS: dict[str, Callable[[Any], Value]] = {
    "double": float,
    "decimal": Decimal,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "timestamp": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}


def of_json(value: Any, kind: str) -> Value:
    """The value of a kind that a JSON value, as `exact_json` reads it, stands for; plain Python alone."""
    return value if value is None or kind not in READERS else READERS[kind](value)


def text_of(value: Value, kind: str) -> Any:
    """The JSON value of a sender that writes JSON by hand; numbers are texts of their digits, see `number`."""
    if value is None or kind in {"boolean", "text", "list"}:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in {"timestamp", "date", "time"}:
        return value.isoformat()
    return repr(value) if kind in {"long", "double"} else format(value, "f")


def number(value: Value, kind: str) -> bool:
    """Whether `text_of` is the text of a JSON number."""
    if kind in {"long", "decimal"}:
        return value is not None
    return kind == "double" and value is not None and math.isfinite(value)
