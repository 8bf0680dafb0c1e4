"""SQL of clients makes no row of so many columns that it is long whatever bounds its values."""

import sqlite3
from pathlib import Path

import pytest
from tests.support.view.row_records import LOGS, file_of, view

from hifi.pipe.view import MOST_FIELDS
from hifi.runtime.read_only_sql import QueryRejected
from hifi_view.store.row_file import OWN_COLUMNS, RowFile
from hifi_view.store.row_queries import RowQueries

KEY = [f"k{number}" for number in range(8)]
WIDEST = view(key=KEY, fields={f"f{number}": "text" for number in range(MOST_FIELDS)})


def test_the_widest_view_can_be_read_and_no_query_has_many_more_columns(tmp_path: Path) -> None:
    RowFile(file_of(tmp_path), WIDEST, LOGS).close()
    queries = RowQueries(WIDEST)
    database = sqlite3.connect(file_of(tmp_path))
    try:
        result = queries.sql(database, "SELECT * FROM flights_now", 1, 60)
        assert result.columns == [*WIDEST.columns, *OWN_COLUMNS]
        assert queries.rows(database, [], None, 1, 60) == ([], None)
        with pytest.raises(QueryRejected, match="too many columns"):
            queries.sql(database, f"SELECT {', '.join(['f0'] * 251)} FROM flights_now", 1, 60)
    finally:
        database.close()
