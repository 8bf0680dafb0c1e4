"""Tables follow the declared columns as far as Iceberg can; a real catalog and real files."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from hifi.pipe.model import SqlType
from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import column_types, open_table


def declared(folder: Path, columns: Mapping[str, SqlType]) -> LakeTable:
    settings = IcebergSettings(warehouse=str(folder), table="shop.orders", partition="none")
    return LakeTable("p", "lake", settings, columns)


def test_an_int_column_becomes_bigint_and_keeps_its_rows(tmp_path: Path) -> None:
    table = open_table(declared(tmp_path, {"n": SqlType.INT}))
    assert set(column_types(declared(tmp_path, {"n": SqlType.INT}))) == {
        field.name for field in table.schema().fields
    }
    schema = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([{"n": 2**31 - 1}], schema=schema))
    for _ in range(2):
        table = open_table(declared(tmp_path, {"n": SqlType.BIGINT, "m": SqlType.STRING}))
    table.append(pa.Table.from_pylist([{"n": 2**62, "m": "x"}], schema=table.schema().as_arrow()))
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [2**31 - 1, 2**62]


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"n": SqlType.STRING}, "n is int, not string"), ({"N": SqlType.INT}, "upper and lower case only")],
)
def test_what_a_table_cannot_become_is_refused(
    tmp_path: Path, columns: Mapping[str, SqlType], message: str
) -> None:
    open_table(declared(tmp_path, {"n": SqlType.INT}))
    with pytest.raises(Misconfigured, match=message):
        open_table(declared(tmp_path, columns))
