"""Loads the lookup tables of all pipes, refreshes them in the background, and broadcasts them to Spark."""

import asyncio
import concurrent.futures
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hifi.pipe.limit_check import enrich_refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Lookup
from hifi.pipe.revision import PipeRevision
from hifi.runtime import log, metrics
from hifi.runtime.cache import Cache
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.health import Health
from hifi.spark import lookup_reader
from hifi.spark.catalyst import Catalyst, JavaObject
from hifi.spark.lookup_key import table_id, table_ids
from hifi.spark.lookup_reader import ReadLimits
from hifi_enrich.lookup.table import LookupTable, build_table

_LIMITS: Final = ReadLimits()
HEAP_SHARE: Final = 6
"""Lookups have this fraction of Spark's heap, as its denominator. While a table is copied it needs three times its
memory, and the copy that it replaces stays in use."""
_RETRY_WAIT_S: Final = 1.0
"""Time that pipes wait for a table that could not be read before, seconds: another pipe's may be the one that hangs."""

logger = log.get(__name__)


@dataclass(slots=True)
class _BroadcastTable:
    """A table that is in Spark."""

    table: LookupTable
    broadcast: JavaObject


@dataclass(frozen=True, slots=True)
class _AllTables:
    """All tables that are in Spark, and their broadcast (`LookupBroadcasts.tables`)."""

    tables: dict[str, LookupTable]
    broadcast: JavaObject


class LookupTables:
    """The tables by id. Pipes that declare the same lookup share one table."""

    def __init__(
        self,
        scratch: Path,
        health: Health,
        limits: ReadLimits = _LIMITS,
        most_heap_bytes: int = 1024**3 // HEAP_SHARE,
    ) -> None:
        """Start with no table.

        Args:
            scratch: folder for temporary files on the way to the JVM.
            health: warned of tables that could not be reloaded.
            limits: of reading a table. One that is not read in time is given up, whatever keeps it.
            most_heap_bytes: of all tables together in Spark's heap; a table beyond it is not used.
        """
        self._most_heap_bytes = most_heap_bytes
        self._heap_bytes: dict[str, tuple[str, int]] = {}
        """Table to its memory in Spark's heap, about."""
        self._heap_lock = threading.Lock()
        self._limits = limits
        self._in_reading: set[str] = set()
        self._health = health
        self._scratch = scratch
        self._listeners: list[Callable[[], None]] = []
        self._caches: dict[str, Cache[LookupTable]] = {}
        self._readings: dict[str, asyncio.Task[None]] = {}
        """Table to its first reading, while that goes on."""
        self._failure_reasons: dict[str, str] = {}
        """Table that could not be read the last time to the reason."""
        self._broadcast: dict[str, _BroadcastTable] = {}
        self._all_tables: _AllTables | None = None
        self.problems: dict[str, str] = {}
        """Lookup (`pipe/name`) to the problem of its table."""
        self.problems_changed = asyncio.Event()
        """Set when `problems` changed."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener, in the event loop, after a refresh that changed a table, or failed after its expiry."""
        self._listeners.append(listener)

    async def load(self, pipes: Iterable[PipeRevision]) -> dict[str, str]:
        """Load the tables that are missing.

        Those that could not be read before are read again in the background: only new ones are waited for, at most the
        time of a reading. The listeners are called when one has been read that was not waited for.

        Returns:
            Key of a revision to the reason why it cannot run: a table could not be read and has no earlier copy.
        """
        limits = pipe_limits()
        pipes = list(pipes)
        refusal_reasons = {
            revision.key: "; ".join(refusals)
            for revision in pipes
            if (refusals := [reason for _, reason in enrich_refusals(revision.pipe, limits)])
        }
        pipes = [revision for revision in pipes if revision.key not in refusal_reasons]
        missing_lookups = {
            table_id(lookup, revision.pipe.pipe): (revision.pipe.pipe, name, lookup)
            for revision in pipes
            for name, lookup in revision.pipe.enrich.lookups.items()
            if table_id(lookup, revision.pipe.pipe) not in self._caches
        }
        for key in self._failure_reasons.keys() - missing_lookups.keys():
            del self._failure_reasons[key]
        for key, (pipe, name, lookup) in missing_lookups.items():
            if key not in self._readings:
                reading = asyncio.create_task(self._load_table(key, pipe, name, lookup))
                self._readings[key] = reading
        new_readings = [self._readings[key] for key in missing_lookups if key not in self._failure_reasons]
        retries = [self._readings[key] for key in missing_lookups if key in self._failure_reasons]
        if new_readings:
            await asyncio.wait(new_readings)
        if retries:
            await asyncio.wait(retries, timeout=_RETRY_WAIT_S)
        return refusal_reasons | {
            revision.key: reason
            for revision in pipes
            if (reason := self._failure_reason(revision)) is not None
        }

    def retain(self, used_ids: AbstractSet[str]) -> list[JavaObject]:
        """Drop all other tables.

        Returns:
            The broadcasts of these tables, to be destroyed when no query uses them any more.
        """
        for key in [key for key in self._caches if key not in used_ids]:
            cache = self._caches.pop(key)
            self._set_problem(cache.name, None)
            asyncio.ensure_future(cache.stop())  # noqa: RUF006 - it only cancels a task
        unused_ids = [key for key in self._broadcast if key not in used_ids]
        return [self._broadcast.pop(key).broadcast for key in unused_ids]

    def current(self) -> Mapping[str, LookupTable]:
        """The tables that can be used now, by id."""
        usable_tables = {}
        for key, cache in self._caches.items():
            try:
                usable_tables[key] = cache.get()
            except HifiError as error:  # it has expired
                logger.warning("lookup-expired", error=str(error))
        return usable_tables

    def broadcast(
        self, catalyst: Catalyst, tables: Mapping[str, LookupTable]
    ) -> tuple[JavaObject, list[JavaObject]]:
        """Broadcast tables to Spark; only changed tables are copied. Blocking.

        Returns:
            A broadcast of all tables, see `LookupBroadcasts.tables`, and the broadcasts that it replaces.
        """
        if self._all_tables is not None and self._all_tables.tables == tables:
            return self._all_tables.broadcast, []
        replaced_broadcasts = [self._all_tables.broadcast] if self._all_tables else []
        broadcast_map = catalyst.jvm.java.util.HashMap()
        for key, table in tables.items():
            broadcast_table = self._broadcast.get(key)
            if broadcast_table is None or broadcast_table.table != table:
                if broadcast_table is not None:
                    replaced_broadcasts.append(broadcast_table.broadcast)
                broadcast_table = self._broadcast[key] = _BroadcastTable(
                    table, self._broadcast_table(catalyst, key, table)
                )
            broadcast_map.put(key, broadcast_table.broadcast)
        self._all_tables = _AllTables(dict(tables), catalyst.broadcast(broadcast_map))
        return self._all_tables.broadcast, replaced_broadcasts

    async def stop(self) -> None:
        """Stop reading and refreshing."""
        for reading in self._readings.values():
            reading.cancel()
        await asyncio.gather(*(cache.stop() for cache in self._caches.values()))

    def _broadcast_table(self, catalyst: Catalyst, key: str, table: LookupTable) -> JavaObject:
        """A broadcast of one table. Pickled through a file: one call to the JVM instead of one for each row."""
        pickle_file = self._scratch / f"table-{key}.pickle"
        try:
            pickle_file.write_bytes(pickle.dumps(table.rows, protocol=4))
            return catalyst.broadcast(catalyst.unpickle(str(pickle_file)))
        finally:
            pickle_file.unlink(missing_ok=True)

    async def _load_table(self, key: str, pipe: str, lookup_name: str, lookup: Lookup) -> None:
        try:
            reason = await self._start_cache(key, pipe, lookup_name, lookup)
        finally:
            del self._readings[key]
        failed_before = self._failure_reasons.pop(key, None) is not None
        if reason is not None:
            self._failure_reasons[key] = reason
        elif failed_before:
            self._notify()

    async def _start_cache(self, key: str, pipe: str, lookup_name: str, lookup: Lookup) -> str | None:
        """Start the cache of a table; the reason why it cannot be read, None: it has been read."""
        name = f"{pipe}/{lookup_name}"

        def read_table() -> LookupTable:
            table = build_table(name, lookup, lookup_reader.read_rows(lookup, pipe, self._limits))
            previous_table = tables.get(key)
            if previous_table is not None and (loss := previous_table.loss(table, lookup)) is not None:
                raise Misconfigured(loss)
            self._take_heap(key, name, table)
            tables[key] = table
            return table

        def note_refresh(reason: str | None) -> None:
            self._set_problem(cache.name, reason or _emptiness(tables[key]))
            if reason is not None and _has_expired(cache):
                self._notify()

        tables: dict[str, LookupTable] = {}
        cache = Cache(
            f"lookup {name}",
            lambda: self._in_time(key, read_table),
            refresh_s=lookup.refresh,
            expire_s=lookup.expire,
            changed=lambda _: self._notify(),
            refreshed=note_refresh,
        )
        try:
            await cache.start()
        except (HifiError, OSError) as error:
            return f"the lookup {lookup_name} cannot be read: {error}"
        except Exception as error:  # any error of a database driver concerns this lookup only
            logger.exception("lookup-failed", lookup=name)
            return f"the lookup {lookup_name} cannot be read: {type(error).__name__}: {error}"
        self._caches[key] = cache
        self._set_problem(cache.name, _emptiness(tables[key]))
        return None

    def _take_heap(self, key: str, name: str, table: LookupTable) -> None:
        """Reserve the memory of a table in Spark's heap, in place of that of the copy or the declaration before it.

        Args:
            key: of the table, other for another declaration.
            name: of the lookup with its pipe.
            table: with its size.

        Raises:
            Misconfigured: all tables together would need too much.
        """
        with self._heap_lock:
            self._heap_bytes = {
                held_table: named_size
                for held_table, named_size in self._heap_bytes.items()
                if held_table in self._caches or held_table in self._readings
            }
            other_bytes = sum(
                size
                for held_table, (held_name, size) in self._heap_bytes.items()
                if held_table != key and held_name != name
            )
            if other_bytes + table.heap_bytes > self._most_heap_bytes:
                raise Misconfigured(
                    f"its {len(table.rows):,} rows need {table.heap_bytes / 2**20:,.1f} MiB of Spark's heap beside"
                    f" {other_bytes / 2**20:,.1f} MiB of other lookups, and together they may take"
                    f" {self._most_heap_bytes / 2**20:,.1f} MiB; ask for less, or have the operator raise"
                    " HIFI_ENRICH_DRIVER_MEMORY"
                )
            self._heap_bytes[key] = name, table.heap_bytes

    async def _in_time(self, key: str, read_table: Callable[[], LookupTable]) -> LookupTable:
        """Read a table in a thread of its own: a server that never answers keeps it, and no other one.

        Raises:
            Misconfigured: it takes too long, or an earlier reading has not ended.
        """
        if key in self._in_reading:
            raise Misconfigured("an earlier reading of it has not ended")
        outcome: concurrent.futures.Future[LookupTable] = concurrent.futures.Future()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            """Read the table."""
            try:
                table = read_table()
            except BaseException as error:  # noqa: BLE001 - it is raised where the table is waited for
                self._in_reading.discard(key)  # before the waiting task may begin the next reading
                outcome.set_exception(error)
            else:
                self._in_reading.discard(key)
                outcome.set_result(table)

        self._in_reading.add(key)
        threading.Thread(target=run, name=f"lookup-{key}", daemon=True).start()
        try:
            async with asyncio.timeout(self._limits.query_s):
                return await asyncio.wrap_future(outcome)
        except TimeoutError:
            raise Misconfigured(
                f"it was not read within {self._limits.query_s:g} s; ask for less, or have the operator raise "
                "HIFI_ENRICH_LOOKUP_S"
            ) from None

    def _set_problem(self, name: str, reason: str | None) -> None:
        """Show the problem of a table; `reason` None: it has none."""
        self._health.warn(name, reason)
        lookup = name.removeprefix("lookup ")
        metrics.LOOKUP_PROBLEMS.labels(lookup).set(reason is not None)
        if self.problems.get(lookup) == reason:
            return
        if reason is None:
            del self.problems[lookup]
        else:
            self.problems[lookup] = reason
        self.problems_changed.set()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _failure_reason(self, revision: PipeRevision) -> str | None:
        for name, lookup in revision.pipe.enrich.lookups.items():
            key = table_id(lookup, revision.pipe.pipe)
            if key in self._failure_reasons:
                return self._failure_reasons[key]
            if _has_expired(self._caches[key]):
                return f"the lookup {name} has expired"
        return None


def _has_expired(cache: Cache[LookupTable]) -> bool:
    try:
        cache.get()
    except HifiError:
        return True
    return False


def _emptiness(table: LookupTable) -> str | None:
    return None if table.rows else "it has no rows"


def tables_of(pipes: Iterable[PipeRevision]) -> set[str]:
    """The ids of the tables of some pipes."""
    return {table for revision in pipes for table in table_ids(revision.pipe)}
