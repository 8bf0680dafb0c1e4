"""The types of a table's columns, as the catalog of PostgreSQL has them. Pure."""

from collections.abc import Mapping
from typing import Final

READ_TYPES: Final = """
    WITH RECURSIVE resolved (name, declared, type, modifier) AS (
      SELECT attname, format_type(atttypid, atttypmod), atttypid, atttypmod FROM pg_attribute
      WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
      UNION ALL
      SELECT name, declared, typbasetype, typtypmod FROM resolved JOIN pg_type ON oid = type WHERE typtype = 'd'
    )
    SELECT name, format_type(base.oid, -1), declared, base.typname, base.typcategory,
      CASE WHEN base.typcategory = 'A' THEN element.typname END, element.typcategory,
      CASE WHEN 'varchar' IN (base.typname, element.typname)
        THEN nullif(coalesce(nullif(resolved.modifier, -1), element.modifier), -1) - 4 END,
      coalesce(element.typdelim, ','),
      CASE WHEN 'interval' IN (base.typname, element.typname)
        THEN nullif(coalesce(nullif(resolved.modifier, -1), element.modifier), -1) >> 16 & 32767 END
    FROM resolved JOIN pg_type AS base ON base.oid = type LEFT JOIN LATERAL (
      WITH RECURSIVE step AS (
        SELECT typname, typcategory, typtype, typbasetype, typdelim, typtypmod FROM pg_type WHERE oid = base.typelem
        UNION ALL
        SELECT next.typname, next.typcategory, next.typtype, next.typbasetype, next.typdelim,
          coalesce(nullif(next.typtypmod, -1), step.typtypmod)
        FROM step JOIN pg_type AS next ON next.oid = step.typbasetype WHERE step.typtype = 'd'
      )
      SELECT typname, typcategory, typdelim, typtypmod AS modifier FROM step WHERE typtype <> 'd'
    ) AS element ON true
    WHERE base.typtype <> 'd'
"""
"""Name and type of each column of a table, domains resolved."""


_READ_AS: Final[Mapping[str, str]] = {
    "timestamp": "timestamp with time zone",
    "money": "numeric",
}
"""Types whose text is read as another type first.

Of a time with a zone, `timestamp` would drop the zone: it has the time in UTC, the zone of the session. The text of
`money` follows the locale of the session.
"""


class ScalarType:
    """Type of one value, which is no array.

    Attributes:
        name: in `pg_type`, of a domain that of its base type, such as `int4`.
        category: `typcategory` in `pg_type`, such as `N` for numbers.
        length: most characters of a text; None: it is no `varchar` with a limit.
        interval_fields: bits of the fields that an `interval` was declared with, such as `YEAR TO MONTH`, as PostgreSQL
            numbers them (utils/timestamp.h); None: it is no `interval`, or all fields are meant.
    """

    def __init__(self, name: str, category: str, length: int | None, interval_fields: int | None) -> None:
        """See the attributes."""
        self.name = name
        self.category = category
        self.length = length
        self.interval_fields = interval_fields


class ColumnType(ScalarType):
    """Type of a column. Of an array, `length` and `interval_fields` are those of an element.

    Attributes:
        written: SQL of the type without its length or precision, of a domain that of its base type: a cast to a domain
            cuts what is too long.
        declared: SQL of the type, for messages.
        element: type of the elements of an array, of a domain that of its base type; None: it is no array.
        delimiter: between the elements of an array.
    """

    def __init__(
        self,
        written: str,
        declared: str,
        name: str,
        category: str,
        element: str | None = None,
        element_category: str | None = None,
        length: int | None = None,
        delimiter: str = ",",
        interval_fields: int | None = None,
    ) -> None:
        """A row of `READ_TYPES`.

        Args:
            written: see the attributes.
            declared: see the attributes.
            name: see the attributes.
            category: see the attributes.
            element: name in `pg_type` of the elements of an array; None: it is no array.
            element_category: of the elements.
            length: see the attributes.
            delimiter: see the attributes.
            interval_fields: see the attributes.
        """
        super().__init__(name, category, length, interval_fields)
        self.written = written
        self.declared = declared
        self.element = (
            None if element is None else ScalarType(element, element_category or "", length, interval_fields)
        )
        self.delimiter = delimiter

    def cast_to(self, type_sql: str) -> str:
        """SQL of the types that a text is cast to, one after the other; it does not depend on the session's locale.

        Args:
            type_sql: SQL of the type, with or without its length or precision.
        """
        read_as = _READ_AS.get(self.name if self.element is None else self.element.name)
        if read_as is None:
            return type_sql
        return f"{read_as}[]::{type_sql}" if self.element is not None else f"{read_as}::{type_sql}"
