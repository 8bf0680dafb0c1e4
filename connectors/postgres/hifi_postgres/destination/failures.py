"""Reactions to errors of PostgreSQL for a batch. Pure. Codes: https://www.postgresql.org/docs/15/errcodes-appendix.html."""

from collections.abc import Sequence
from typing import Final

from psycopg import DataError, Error

from hifi.runtime.errors import HifiError, Missing, Rejected, Retryable, Unacknowledged

_PASSING: Final = ("08", "25", "26", "28", "3D", "40", "53", "55", "57", "58", "F0", "XX")
"""Classes of codes that are about the connection, the server or other transactions."""
_PASSING_CODES: Final = frozenset({"42501", "42P03", "42P05"})
"""No privilege; a cursor or a prepared statement of another client of the same connection."""
_OTHER_TABLE: Final = frozenset({"3F000", "42P01", "42703", "42P10", "42704"})
"""Codes of objects that the settings name and that do not exist: schema, table, column, unique index, type."""
_TRIGGERED: Final = ("09", "38", "39", "P0")
"""Classes of codes of functions that a statement runs."""
_NOT_NULL: Final = "23502"
_RAISED: Final = "exec_stmt_raise"
"""Function of PL/pgSQL that raises what a trigger raises, with a text that may have values."""


def is_about_row(error: Error) -> bool:
    """Whether a row or the table causes the error, rather than the connection, the server or another transaction."""
    code = error.sqlstate or ""
    if not code:
        return isinstance(error, DataError)
    return not code.startswith(_PASSING) and code not in _PASSING_CODES


def failure(
    error: Error, *, committing: bool, table: str, absent: Sequence[str] = (), column: str = ""
) -> HifiError:
    """The error of hifi for an error of PostgreSQL. Its text has names of tables and columns, and no values.

    Args:
        error: of a statement.
        committing: the statement was COMMIT.
        table: name.
        absent: columns that the row leaves as they are.
        column: which column the error is about, and what of it, if that is known.
    """
    code = error.sqlstate or ""
    name = type(error).__name__
    if is_about_row(error):
        return _about_row(error, table, absent, column)
    if committing and not code.startswith("40"):
        return Unacknowledged(f"PostgreSQL did not answer the COMMIT: {name} ({code or 'connection lost'})")
    return Retryable(f"PostgreSQL: {name} ({code or 'connection lost'})")


def _about_row(error: Error, table: str, absent: Sequence[str], column: str) -> HifiError:
    code = error.sqlstate or ""
    name = type(error).__name__
    if error.diag.source_function == _RAISED or code.startswith(_TRIGGERED):
        return Rejected("refused", f"a trigger of the table {table} refuses the row ({code})")
    if code == _NOT_NULL and error.diag.column_name in absent:
        return Retryable(
            f"the table {table} has no row yet whose column {error.diag.column_name} the event leaves as it is"
        )
    if code.startswith(("42", "3F")):
        reason = f"the table {table} does not fit the settings: {_text(error)} ({code})"
        if code in _OTHER_TABLE:
            return Missing(f"part of the table {table}", f"{reason}; deliveries wait until it does")
        return Rejected("schema", reason)
    if code.startswith(("23", "44")):
        suffix = f"; {column}" if column else ""
        return Rejected(
            "constraint", f"the row violates a constraint: {_text(error)} ({name}, {code}){suffix}"
        )
    problem = column or f"a value does not fit its column in {table}"
    return Rejected("value", f"{problem}: {name} ({code or 'found by the driver'})")


def _text(error: Error) -> str:
    """Message and hint of PostgreSQL, which in these classes name tables, columns, constraints and types only."""
    diagnosis = error.diag
    table = diagnosis.table_name
    details = [diagnosis.message_primary or type(error).__name__]
    if diagnosis.column_name and diagnosis.column_name not in details[0]:
        details.append(f"column {diagnosis.column_name}")
    if table and table not in details[0]:
        details.append(f"table {table}")
    if diagnosis.message_hint:
        details.append(f"hint: {diagnosis.message_hint}")
    return ", ".join(details)
