"""The types of a table's columns, as the catalog of PostgreSQL has them. Pure."""

from typing import Final, NamedTuple

READ_TYPES: Final = """
    WITH RECURSIVE resolved (name, written, declared, type) AS (
      SELECT attname, format_type(atttypid, -1), format_type(atttypid, atttypmod), atttypid FROM pg_attribute
      WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
      UNION ALL
      SELECT name, written, declared, typbasetype FROM resolved JOIN pg_type ON oid = type WHERE typtype = 'd'
    )
    SELECT name, written, declared, base.typname, base.typcategory,
      CASE WHEN base.typcategory = 'A' THEN element.typname END, element.typcategory
    FROM resolved JOIN pg_type AS base ON base.oid = type LEFT JOIN pg_type AS element ON element.oid = base.typelem
    WHERE base.typtype <> 'd'
"""
"""Name and type of each column of a table, domains resolved."""


class ColumnType(NamedTuple):
    """Type of a column.

    Attributes:
        written: SQL of the type without its length or precision.
        declared: SQL of the type, for messages.
        name: in `pg_type`, of a domain that of its base type, such as `int4`.
        category: `typcategory` in `pg_type`, such as `N` for numbers.
        element: name in `pg_type` of the elements of an array; None: it is no array.
        element_category: of the elements.
    """

    written: str
    declared: str
    name: str
    category: str
    element: str | None = None
    element_category: str | None = None
