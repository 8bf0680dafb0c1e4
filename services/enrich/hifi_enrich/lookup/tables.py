"""Every table that the pipes look things up in: loaded, refreshed, and handed to Spark."""

import asyncio
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hifi import log
from hifi.cache import Cache
from hifi.errors import HifiError
from hifi.pipe.model import Lookup
from hifi.pipe.registry import PipeVersion
from hifi_enrich.catalyst import Catalyst, Java
from hifi_enrich.lookup import load
from hifi_enrich.lookup.key import table_id
from hifi_enrich.lookup.table import Table, build

logger = log.get(__name__)


@dataclass(slots=True)
class _Shared:
    """A table's rows in Spark."""

    table: Table
    broadcast: Java


class Tables:
    """The tables, by id. Pipes that declare the same lookup share one."""

    def __init__(self, temp: Path) -> None:
        """Begin without any.

        Args:
            temp: folder for what is handed over to the JVM.
        """
        self._temp = temp
        self._listeners: list[Callable[[], None]] = []
        self._caches: dict[str, Cache[Table]] = {}
        self._shared: dict[str, _Shared] = {}
        self._all: tuple[dict[str, Table], Java] | None = None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener, from the event loop, when a refresh found another content."""
        self._listeners.append(listener)

    async def load(self, pipes: Iterable[PipeVersion]) -> dict[str, str]:
        """Load what is missing.

        Returns:
            Pipe to the reason why it cannot run: a table of it could not be read and there is no old copy.
        """
        pipes = list(pipes)
        missing = {
            table_id(lookup): (f"{known.pipe.pipe}/{name}", lookup)
            for known in pipes
            for name, lookup in known.pipe.enrich.lookups.items()
            if table_id(lookup) not in self._caches
        }
        reasons = await asyncio.gather(
            *(self._start(key, name, lookup) for key, (name, lookup) in missing.items())
        )
        failed = {key: reason for key, reason in zip(missing, reasons, strict=True) if reason is not None}
        return {
            known.pipe.pipe: reason for known in pipes if (reason := self._reason(known, failed)) is not None
        }

    def retain(self, lookups: Iterable[Lookup]) -> list[Java]:
        """Forget all other tables.

        Returns:
            Their broadcasts, to be destroyed once no query uses them.
        """
        wanted = {table_id(lookup) for lookup in lookups}
        for key in [key for key in self._caches if key not in wanted]:
            cache = self._caches.pop(key)
            asyncio.ensure_future(cache.stop())  # noqa: RUF006 - it only cancels
        return [self._shared.pop(key).broadcast for key in [key for key in self._shared if key not in wanted]]

    def current(self) -> Mapping[str, Table]:
        """The tables that are served now."""
        served = {}
        for key, cache in self._caches.items():
            try:
                served[key] = cache.get()
            except HifiError as error:  # expired
                logger.warning("lookup-expired", error=str(error))
        return served

    def share(self, catalyst: Catalyst, tables: Mapping[str, Table]) -> tuple[Java, list[Java]]:
        """Hand tables to Spark; only what changed is copied. Blocking.

        Returns:
            A broadcast of all, see `Plan.tables`, and the broadcasts that it replaces.
        """
        if self._all is not None and self._all[0] == tables:
            return self._all[1], []
        replaced = [self._all[1]] if self._all else []
        everything = catalyst.jvm.java.util.HashMap()
        for key, table in tables.items():
            shared = self._shared.get(key)
            if shared is None or shared.table != table:
                if shared is not None:
                    replaced.append(shared.broadcast)
                shared = self._shared[key] = _Shared(table, self._hand_over(catalyst, key, table))
            everything.put(key, shared.broadcast)
        self._all = dict(tables), catalyst.broadcast(everything)
        return self._all[1], replaced

    async def stop(self) -> None:
        """Stop refreshing."""
        await asyncio.gather(*(cache.stop() for cache in self._caches.values()))

    def _hand_over(self, catalyst: Catalyst, key: str, table: Table) -> Java:
        file = self._temp / f"table-{key}.pickle"
        try:
            file.write_bytes(pickle.dumps(table.rows, protocol=4))
            return catalyst.broadcast(catalyst.unpickle(str(file)))
        finally:
            file.unlink(missing_ok=True)

    async def _start(self, key: str, name: str, lookup: Lookup) -> str | None:
        def read() -> Table:
            return build(name, lookup, load.read(lookup))

        cache = Cache(
            f"lookup {name}",
            lambda: asyncio.to_thread(read),
            refresh_s=lookup.refresh,
            expire_s=lookup.expire,
            changed=self._announce,
        )
        try:
            await cache.start()
        except (HifiError, OSError) as error:
            return f"the lookup {name.partition('/')[2]} cannot be read: {error}"
        except Exception as error:  # one pipe's lookup must not stop the others, whatever its driver raises
            logger.exception("lookup-failed", lookup=name)
            return f"the lookup {name.partition('/')[2]} cannot be read: {type(error).__name__}: {error}"
        self._caches[key] = cache
        return None

    def _announce(self, _: Table) -> None:
        for listener in self._listeners:
            listener()

    def _reason(self, known: PipeVersion, failed: Mapping[str, str]) -> str | None:
        for name, lookup in known.pipe.enrich.lookups.items():
            key = table_id(lookup)
            if key in failed:
                return failed[key]
            try:
                self._caches[key].get()
            except HifiError:
                return f"the lookup {name} has expired"
        return None


def lookups(pipes: Sequence[PipeVersion]) -> list[Lookup]:
    """Every lookup of some pipes."""
    return [lookup for known in pipes for lookup in known.pipe.enrich.lookups.values()]
