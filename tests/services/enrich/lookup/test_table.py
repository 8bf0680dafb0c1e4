"""Tables of lookups: keyed rows as text, equal when their content is."""

from typing import Any

from hifi.pipe.model import Lookup
from hifi_enrich.lookup.table import build_table


def lookup(**options: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": "/x.csv", "key": {"carrier": "code"}, "fields": {"airline": "name"}, **options}
    )


def test_values_are_kept_as_text_of_their_types() -> None:
    sized_lookup = lookup(fields={"n": "name", "s": "size"}, types={"size": "int"})
    rows: list[dict[str, Any]] = [
        {"code": "AA", "name": "American", "size": 9},
        {"code": "UA", "name": None, "size": None},
    ]
    assert build_table("airlines", sized_lookup, rows).rows == {"AA": ("American", "9"), "UA": (None, None)}


def test_of_equal_keys_the_last_counts_and_null_keys_are_left_out() -> None:
    rows: list[dict[str, Any]] = [
        {"code": "A", "name": "1"},
        {"code": None, "name": "2"},
        {"code": "A", "name": "3"},
    ]
    assert build_table("x", lookup(), rows).rows == {"A": ("3",)}


def test_equal_content_is_an_equal_table_and_other_content_is_not() -> None:
    tables = [build_table("x", lookup(), [{"code": "A", "name": name}]) for name in ("1", "1", "2")]
    assert tables[0] == tables[1] != tables[2]
