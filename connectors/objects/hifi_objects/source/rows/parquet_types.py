"""The types of Parquet columns: which of them have to be cast before their values can be written as JSON. Pure."""

from collections.abc import Iterable

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


def readable(data_type: pa.DataType) -> pa.DataType:
    """A type whose values Python can represent: nanoseconds become microseconds, zones UTC, at every depth."""
    types = pa.types
    if types.is_temporal(data_type):
        return _readable_time(data_type)
    if types.is_struct(data_type):
        return pa.struct([field.with_type(readable(field.type)) for field in data_type])
    if types.is_map(data_type):
        key_field, item_field = data_type.key_field, data_type.item_field
        return pa.map_(
            key_field.with_type(readable(key_field.type)), item_field.with_type(readable(item_field.type))
        )
    if types.is_dictionary(data_type):
        value_type = readable(data_type.value_type)
        return data_type if value_type == data_type.value_type else value_type
    return _readable_list(data_type) if _is_list(data_type) else data_type


def _readable_time(data_type: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(data_type):
        return pa.timestamp("us" if data_type.unit == "ns" else data_type.unit, _UTC)
    if types.is_time64(data_type):
        return pa.time64("us")
    return pa.duration("us") if types.is_duration(data_type) and data_type.unit == "ns" else data_type


def _readable_list(data_type: pa.DataType) -> pa.DataType:
    field = data_type.value_field.with_type(readable(data_type.value_type))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(field, data_type.list_size)
    return pa.large_list(field) if pa.types.is_large_list(data_type) else pa.list_(field)


def _is_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type)
    )
