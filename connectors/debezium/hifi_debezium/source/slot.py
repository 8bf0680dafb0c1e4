"""Size of the log that a database keeps for a replication slot, and the end of a slot that has lost its log."""

import asyncio
import socket
from typing import Any, Final

from psycopg import AsyncConnection, Error
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from hifi.pipe.sources.kind import NOTHING_HELD, Held
from hifi.runtime import log
from hifi.runtime.egress import EgressKind, egress, pinned
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_debezium.declaration import DebeziumSource

_TIMEOUT_S: Final = 10
_HELD: Final = """
    SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, active FROM pg_replication_slots
    WHERE slot_name = %s AND restart_lsn IS NOT NULL
"""
_DROP_LOST: Final = """
    SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
    WHERE slot_name = %s AND wal_status = 'lost' AND NOT active
"""

_DROP: Final = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"

logger = log.get(__name__)


async def drop_slot(source: DebeziumSource, slot: str, pipe: str) -> None:
    """Drop a slot of a pipe, if it is there.

    Raises:
        Retryable: somebody reads it, or the database does not answer.
        Misconfigured: the password cannot be read here, the database may not be connected to, or the user may not drop
            the slot.
    """
    try:
        async with asyncio.timeout(2 * _TIMEOUT_S), await connect_database(source, pipe) as connection:
            await connection.execute(_DROP, [slot])
    except InsufficientPrivilege as error:
        raise Misconfigured(f"the user may not drop the slot {slot}: {error}") from error
    except (TimeoutError, socket.gaierror, Error) as error:
        raise Retryable(f"the slot {slot} is not dropped yet: {error!r}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the slot {slot} cannot be dropped: {error}") from error


async def held_by_slot(source: DebeziumSource, slot: str, pipe: str) -> Held:
    """The log that the database keeps; `NOTHING_HELD` where it is unknown: no password, no connection, no slot yet.

    A slot that has lost changes, for `max_slot_wal_keep_size`, is dropped: the connector makes a new one with a new
    snapshot.
    """
    database = source.database
    try:
        async with asyncio.timeout(2 * _TIMEOUT_S), await connect_database(source, pipe) as connection:
            if (await connection.execute(_DROP_LOST, [slot])).rowcount:
                logger.error("slot-lost", slot=slot, database=database.name, host=database.host)
            row = await (await connection.execute(_HELD, [slot])).fetchone()
    except (OSError, UnicodeDecodeError, TimeoutError, Error):
        return NOTHING_HELD
    if row is None:
        return NOTHING_HELD
    held_bytes, is_active = row
    if held_bytes <= source.most_held:
        return Held(held_bytes, "")
    activity = "which is read" if is_active else "which nobody reads"
    return Held(
        held_bytes,
        f"the database {database.name} at {database.host} keeps {held_bytes / 1024**2:.0f} MiB of its log for the slot "
        f"{slot}, {activity}; more than {source.most_held / 1024**2:.0f} MiB",
    )


async def connect_database(source: DebeziumSource, pipe: str) -> AsyncConnection[Any]:
    """A connection to the database of a source.

    Raises:
        OSError, UnicodeDecodeError: the password cannot be read here, or the database may not be connected to.
        psycopg.Error: it does not accept the connection.
    """
    database = source.database
    addresses = await egress(pipe).addresses(EgressKind.DATABASE, database.host, database.port)
    password = await asyncio.to_thread(database.password_file.read_text, "utf-8")
    conninfo = make_conninfo(
        "",
        **pinned(database.host, database.port, addresses),
        dbname=database.name,
        user=database.user,
        password=password.rstrip("\r\n"),
        sslmode=database.sslmode,
        connect_timeout=_TIMEOUT_S,
        application_name="hifi collect",
    )
    return await AsyncConnection.connect(conninfo)
