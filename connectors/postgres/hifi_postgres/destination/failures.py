"""What an error of PostgreSQL means for a batch. Pure. Codes: https://www.postgresql.org/docs/15/errcodes-appendix.html."""

from typing import Final

from psycopg import DataError, Error

from hifi.runtime.errors import HifiError, Rejected, Retryable, Unacknowledged

_NOT_WRITTEN: Final = ("22", "23", "40", "42")
"""Classes of codes after which the transaction is certainly rolled back, even if they answer a COMMIT."""
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_RAISED: Final = "P0001"
_CARDINALITY: Final = "21"
"""Class of the code if one statement would change a row twice: the key columns find two keys equal that differ here."""


def by_row_instead(error: Error) -> bool:
    """Whether a statement for many rows may fail although a statement for each of them does not."""
    code = error.sqlstate or ""
    return code.startswith((_CARDINALITY, "22", "42")) or (isinstance(error, DataError) and not code)


def failure(error: Error, *, committing: bool) -> HifiError:
    """The error of hifi for an error of PostgreSQL. Its text has names of tables and columns, and no values.

    Args:
        error: of a statement.
        committing: the statement was COMMIT.
    """
    code = error.sqlstate or ""
    name = type(error).__name__
    if code.startswith("42") and code != _INSUFFICIENT_PRIVILEGE:
        # The text of this class names tables, columns and types only.
        return Rejected(
            "schema", f"the table does not fit the settings: {error.diag.message_primary} ({code})"
        )
    if code.startswith("23"):
        which = error.diag.constraint_name or error.diag.column_name or "a constraint"
        return Rejected("constraint", f"the row violates {which} of the table: {name} ({code})")
    if code.startswith("22") or (isinstance(error, DataError) and not code):
        return Rejected("value", f"a value does not fit its column: {name} ({code or 'found by the driver'})")
    if code == _RAISED:
        return Rejected("refused", f"a trigger of the table refuses the row ({code})")
    if committing and not code.startswith(_NOT_WRITTEN):
        return Unacknowledged(f"PostgreSQL did not answer the COMMIT: {name} ({code or 'connection lost'})")
    return Retryable(f"PostgreSQL: {name} ({code or 'connection lost'})")
