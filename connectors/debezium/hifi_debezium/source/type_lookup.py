"""Looks up in the database what the types of users and extensions are."""

import asyncio
import socket
from collections.abc import Collection
from typing import Final

from psycopg import Error

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.columns import Types
from hifi_debezium.source.slot import connect_database

_TIMEOUT_S: Final = 20
_TYPES: Final = """
    WITH RECURSIVE roots AS (
        SELECT oid, oid AS root FROM pg_type WHERE typtype <> 'd'
        UNION ALL
        SELECT pg_type.oid, roots.root FROM pg_type JOIN roots ON pg_type.typbasetype = roots.oid
    )
    SELECT DISTINCT
        upper(named.typname),
        CASE
            WHEN position('.' in named.typname) > 0 THEN ''
            WHEN of_domain.typname IN ('bytea', 'json', 'jsonb', 'money') THEN ''
            ELSE upper(root.typname)
        END
    FROM roots
    JOIN pg_type named ON named.oid = roots.oid
    JOIN pg_type root ON root.oid = roots.root
    LEFT JOIN roots elements ON elements.oid = root.typelem AND elements.root <> elements.oid
    LEFT JOIN pg_type of_domain ON of_domain.oid = elements.root
    WHERE upper(named.typname) = ANY(%s)
"""
"""Debezium writes elements of arrays of domains as text, and changes of a domain with a dot in its name otherwise than
the rows of a snapshot."""


async def look_up_types(source: DebeziumSource, names: Collection[str], pipe: str) -> Types:
    """What types are; those that are not there are left out.

    Args:
        source: with the database.
        names: of the types, upper-case.
        pipe: that declares it.

    Raises:
        Retryable: the database does not answer.
        Misconfigured: the password cannot be read here, or the database may not be connected to.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S), await connect_database(source, pipe) as connection:
            rows = await (await connection.execute(_TYPES, [list(names)])).fetchall()
    except (TimeoutError, socket.gaierror, Error) as error:
        raise Retryable(f"the types of columns cannot be looked up: {error!r}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the types of columns cannot be looked up: {error}") from error
    types: dict[str, str] = {}
    for name, root in rows:
        types[name] = "" if name in types else root
    return types
