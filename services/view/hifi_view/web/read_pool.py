"""Threads with read-only connections to the file of a view.

SQL of clients has threads of its own, so that reads of rows do not wait for queries.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from hifi.runtime.http.problem import retry_later
from hifi_view.read.followed_view import FollowedView
from hifi_view.store.row_file import is_damage

_READERS: Final = 4
_QUERIES: Final = 2
_WAITING: Final = 64
"""Reads that wait for a thread; more are refused."""

T = TypeVar("T")


class ReadPool:
    """Reads the file of one view.

    Args:
        view: its file may be made anew at any time.
        threads: number of threads.
    """

    def __init__(self, view: FollowedView, threads: int) -> None:
        self._view = view
        self._threads = ThreadPoolExecutor(threads, f"read-{view.view.view}")
        self._local = threading.local()
        self._max_reads = threads + _WAITING
        self._running_reads = 0

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read.

        Raises:
            Problem: 503, too many wait, or the file was not opened yet, or made anew meanwhile.
        """
        if self._running_reads >= self._max_reads:
            raise retry_later("Too many reads of this view wait; ask again later.")
        generation = self._view.generation
        if not generation:
            raise retry_later("The file of this view was not opened yet; ask again.")
        self._running_reads += 1
        try:
            result = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: operation(self._connection(generation))
            )
        except sqlite3.Error as error:
            if is_damage(error):
                self._view.note_damage(generation)
            raise retry_later("The rows of this view cannot be read now; ask again.") from error
        finally:
            self._running_reads -= 1
        if generation != self._view.generation:
            raise retry_later("The rows of this view are being read from Kafka anew; ask again.")
        return result

    def _connection(self, generation: int) -> sqlite3.Connection:
        """The connection of this thread to the present file."""
        if getattr(self._local, "generation", None) == generation:
            return self._local.database  # type: ignore[no-any-return]  # it is one
        previous_database: sqlite3.Connection | None = getattr(self._local, "database", None)
        if previous_database is not None:
            previous_database.close()
        database = sqlite3.connect(
            f"{self._view.path.resolve().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        database.execute("PRAGMA query_only = ON")
        self._local.database, self._local.generation = database, generation
        return database


class ViewReads:
    """The threads of one view: for rows, and for SQL of clients."""

    def __init__(self, view: FollowedView) -> None:
        """None are started before they are needed."""
        self.rows = ReadPool(view, _READERS)
        self.sql = ReadPool(view, _QUERIES)
