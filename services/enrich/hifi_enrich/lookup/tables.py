"""Loads the lookup tables of all pipes, refreshes them in the background, and broadcasts them to Spark."""

import asyncio
import pickle
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

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
from hifi_enrich.lookup.table import LookupTable, build_table

logger = log.get(__name__)


@dataclass(slots=True)
class _BroadcastTable:
    """A table that is in Spark."""

    table: LookupTable
    broadcast: JavaObject


class LookupTables:
    """The tables by id. Pipes that declare the same lookup share one table."""

    def __init__(self, scratch: Path, health: Health) -> None:
        """Start with no table.

        Args:
            scratch: folder for temporary files on the way to the JVM.
            health: where tables that could not be reloaded are shown.
        """
        self._health = health
        self._scratch = scratch
        self._listeners: list[Callable[[], None]] = []
        self._caches: dict[str, Cache[LookupTable]] = {}
        self._broadcast: dict[str, _BroadcastTable] = {}
        self._all: tuple[dict[str, LookupTable], JavaObject] | None = None
        self.problems: dict[str, str] = {}
        """Lookup (`pipe/name`) to the reason why its table is not as it should be."""
        self.problems_changed = asyncio.Event()
        """Set when `problems` changed."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener, in the event loop, after a refresh that changed a table."""
        self._listeners.append(listener)

    async def load(self, pipes: Iterable[PipeRevision]) -> dict[str, str]:
        """Load the tables that are missing.

        Returns:
            Key of a revision to the reason why it cannot run: a table could not be read and has no earlier copy.
        """
        limits = pipe_limits()
        pipes = list(pipes)
        refused = {
            revision.key: "; ".join(refusals)
            for revision in pipes
            if (refusals := [why for _, why in enrich_refusals(revision.pipe, limits)])
        }
        pipes = [revision for revision in pipes if revision.key not in refused]
        missing = {
            table_id(lookup, revision.pipe.pipe): (revision.pipe.pipe, name, lookup)
            for revision in pipes
            for name, lookup in revision.pipe.enrich.lookups.items()
            if table_id(lookup, revision.pipe.pipe) not in self._caches
        }
        reasons = await asyncio.gather(*(self._start(key, *declared) for key, declared in missing.items()))
        failed = {key: reason for key, reason in zip(missing, reasons, strict=True) if reason is not None}
        return refused | {
            revision.key: reason
            for revision in pipes
            if (reason := self._reason(revision, failed)) is not None
        }

    def retain(self, used_ids: AbstractSet[str]) -> list[JavaObject]:
        """Drop all other tables.

        Returns:
            Their broadcasts, to be destroyed when no query uses them any more.
        """
        for key in [key for key in self._caches if key not in used_ids]:
            cache = self._caches.pop(key)
            self._show(cache.name, None)
            asyncio.ensure_future(cache.stop())  # noqa: RUF006 - it only cancels a task
        unused = [key for key in self._broadcast if key not in used_ids]
        return [self._broadcast.pop(key).broadcast for key in unused]

    def current(self) -> Mapping[str, LookupTable]:
        """The tables that can be used now, by id."""
        usable = {}
        for key, cache in self._caches.items():
            try:
                usable[key] = cache.get()
            except HifiError as error:  # it has expired
                logger.warning("lookup-expired", error=str(error))
        return usable

    def broadcast(
        self, catalyst: Catalyst, tables: Mapping[str, LookupTable]
    ) -> tuple[JavaObject, list[JavaObject]]:
        """Broadcast tables to Spark; only changed tables are copied. Blocking.

        Returns:
            A broadcast of all tables, see `LookupBroadcasts.tables`, and the broadcasts that it replaces.
        """
        if self._all is not None and self._all[0] == tables:
            return self._all[1], []
        replaced = [self._all[1]] if self._all else []
        all_tables = catalyst.jvm.java.util.HashMap()
        for key, table in tables.items():
            broadcast_table = self._broadcast.get(key)
            if broadcast_table is None or broadcast_table.table != table:
                if broadcast_table is not None:
                    replaced.append(broadcast_table.broadcast)
                broadcast_table = self._broadcast[key] = _BroadcastTable(
                    table, self._copy(catalyst, key, table)
                )
            all_tables.put(key, broadcast_table.broadcast)
        self._all = dict(tables), catalyst.broadcast(all_tables)
        return self._all[1], replaced

    async def stop(self) -> None:
        """Stop refreshing."""
        await asyncio.gather(*(cache.stop() for cache in self._caches.values()))

    def _copy(self, catalyst: Catalyst, key: str, table: LookupTable) -> JavaObject:
        """A broadcast of one table. Pickled through a file: one call to the JVM instead of one for each row."""
        file = self._scratch / f"table-{key}.pickle"
        try:
            file.write_bytes(pickle.dumps(table.rows, protocol=4))
            return catalyst.broadcast(catalyst.unpickle(str(file)))
        finally:
            file.unlink(missing_ok=True)

    async def _start(self, key: str, pipe: str, lookup_name: str, lookup: Lookup) -> str | None:
        name = f"{pipe}/{lookup_name}"

        def read() -> LookupTable:
            table = build_table(name, lookup, lookup_reader.read_rows(lookup, pipe))
            before = tables.get(key)
            if before is not None and (loss := before.loss(table, lookup)) is not None:
                raise Misconfigured(loss)
            tables[key] = table
            return table

        tables: dict[str, LookupTable] = {}
        cache = Cache(
            f"lookup {name}",
            lambda: asyncio.to_thread(read),
            refresh_s=lookup.refresh,
            expire_s=lookup.expire,
            changed=self._notify,
            refreshed=lambda reason: self._show(cache.name, reason or _emptiness(tables[key])),
        )
        try:
            await cache.start()
        except (HifiError, OSError) as error:
            return f"the lookup {lookup_name} cannot be read: {error}"
        except Exception as error:  # whatever a database driver raises concerns this lookup only
            logger.exception("lookup-failed", lookup=name)
            return f"the lookup {lookup_name} cannot be read: {type(error).__name__}: {error}"
        self._caches[key] = cache
        self._show(cache.name, _emptiness(tables[key]))
        return None

    def _show(self, name: str, reason: str | None) -> None:
        """Show why a table is not as it should be; None: it is."""
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

    def _notify(self, _: LookupTable) -> None:
        for listener in self._listeners:
            listener()

    def _reason(self, revision: PipeRevision, failed: Mapping[str, str]) -> str | None:
        for name, lookup in revision.pipe.enrich.lookups.items():
            key = table_id(lookup, revision.pipe.pipe)
            if key in failed:
                return failed[key]
            try:
                self._caches[key].get()
            except HifiError:
                return f"the lookup {name} has expired"
        return None


def _emptiness(table: LookupTable) -> str | None:
    return None if table.rows else "it has no rows"


def tables_of(pipes: Iterable[PipeRevision]) -> set[str]:
    """The ids of the tables of some pipes."""
    return {table for revision in pipes for table in table_ids(revision.pipe)}
