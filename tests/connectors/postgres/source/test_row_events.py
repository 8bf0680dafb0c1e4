"""The events of rows, whatever their values."""

from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.row_events import RowEvents
from hifi_postgres.source.table_row import TableRow


def test_ids_of_long_keys_are_bounded_different_and_always_the_same() -> None:
    source = SqlSource.model_validate(
        {
            "kind": "sql",
            "database": {"host": "h", "name": "shop", "user": "u", "password_file": "/secrets/p"},
            "table": "orders",
            "column": "changed",
            "key": ["id"],
        }
    )
    keys = ["x" * 10_000, "x" * 9_999 + "y", "ä" * 300, "1"]
    rows = [TableRow(("2026-01-01 00:00:00+00", key), None, b"{}", 2) for key in keys]
    ids = []
    for _ in range(2):
        events = RowEvents(source, "shop/orders", 1000).of(rows, [1, 2, 3, 4])
        ids.append([dict(event.headers)["ce_id"] for event in events])
        assert [event.key.decode() for event in events] == keys
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4
    assert max(map(len, ids[0])) <= 512
    assert all(identifier.startswith(b"shop/orders/2026-01-01") for identifier in ids[0])
    assert ids[0][3].endswith(b"/1")
