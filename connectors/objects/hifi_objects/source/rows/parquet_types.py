"""The types of Parquet columns: which of them have to be cast before their values can be written as JSON. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

_UTC = "UTC"


def duplicate_column(fields: Iterable[pa.Field], parent: str = "") -> str | None:
    """The path of a column, or of a field of one, that is there twice; None: there is none."""
    paths = set[str]()
    for field in fields:
        path = f"{parent}{field.name}"
        if path in paths:
            return path
        paths.add(path)
        if (nested_name := _duplicate_within(field.type, f"{path}.")) is not None:
            return nested_name
    return None


def _duplicate_within(data_type: pa.DataType, parent: str) -> str | None:
    if pa.types.is_struct(data_type):
        return duplicate_column(list(data_type), parent)
    if pa.types.is_map(data_type):
        return _duplicate_within(data_type.item_type, parent)
    if _is_list(data_type):
        return _duplicate_within(data_type.value_type, parent)
    return None


def readable_types(columns: Iterable[pa.DataType], enums: Sequence[bool]) -> list[pa.DataType]:
    """Types whose values Python can represent, at every depth: nanoseconds become microseconds, zones UTC, enums text.

    Args:
        columns: types of the columns as Arrow reads them.
        enums: whether Parquet declares a leaf of these types an `ENUM`, for each leaf, in the order of the schema.
    """
    leaves = iter(enums)
    return [_readable(data_type, leaves) for data_type in columns]


def _readable(data_type: pa.DataType, enums: Iterator[bool]) -> pa.DataType:
    """See `readable_types`; takes from `enums` as many as the type has leaves."""
    types = pa.types
    if types.is_struct(data_type):
        return pa.struct([_readable_field(field, enums) for field in data_type])
    if types.is_map(data_type):
        return pa.map_(
            _readable_field(data_type.key_field, enums), _readable_field(data_type.item_field, enums)
        )
    if types.is_dictionary(data_type):
        value_type = _readable(data_type.value_type, enums)
        return data_type if value_type == data_type.value_type else value_type
    if _is_list(data_type):
        return _readable_list(data_type, enums)
    is_enum = list(islice(enums, _leaf_count(data_type))) == [True]
    if types.is_temporal(data_type):
        return _readable_time(data_type)
    is_bytes = types.is_binary(data_type) or types.is_large_binary(data_type)
    return pa.string() if is_enum and is_bytes else data_type


def _readable_field(field: pa.Field, enums: Iterator[bool]) -> pa.Field:
    return field.with_type(_readable(field.type, enums))


def _leaf_count(data_type: pa.DataType) -> int:
    """The columns that Parquet stores for a type."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _leaf_count(data_type.storage_type)
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    return sum(_leaf_count(field.type) for field in fields) or 1


def _readable_time(data_type: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(data_type):
        return pa.timestamp("us" if data_type.unit == "ns" else data_type.unit, _UTC)
    if types.is_time64(data_type):
        return pa.time64("us")
    return pa.duration("us") if types.is_duration(data_type) and data_type.unit == "ns" else data_type


def _readable_list(data_type: pa.DataType, enums: Iterator[bool]) -> pa.DataType:
    field = _readable_field(data_type.value_field, enums)
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(field, data_type.list_size)
    return pa.large_list(field) if pa.types.is_large_list(data_type) else pa.list_(field)


def _is_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type)
    )
