"""The views of this instance: their declarations, their files, and the readers that follow their topics.

Declarations come from the folder, not from a topic: a view is a right to read data, which the operator of this
service grants, and a topic would add a kind of record, a writer and a right to write it for what one service reads.
Pipes change while a view runs, so each view is compared with the pipe in force.
"""

import asyncio
import fcntl
from collections.abc import Mapping
from typing import IO, Final

from hifi.pipe.loader import load_views
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.view import View
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_view.read.cut_reader import CutReader
from hifi_view.read.followed_view import FollowedView
from hifi_view.read.view_clock import ViewClock
from hifi_view.settings import ViewSettings

_LOCK: Final = "lock"
logger = log.get(__name__)


def declared_views(settings: ViewSettings) -> list[View]:
    """The views of the folder.

    Raises:
        Misconfigured: a declaration is wrong, or there is none.
    """
    folder = settings.view_declarations
    if folder is None:
        raise Misconfigured("HIFI_VIEW_DECLARATIONS is not set; name the folder of pipes with the views")
    loaded_views, problems = load_views(folder)
    if problems:
        raise Misconfigured("views are wrong:\n" + "\n".join(f"  {problem}" for problem in problems))
    if not loaded_views:
        raise Misconfigured(
            f"{folder} declares no view (HIFI_VIEW_DECLARATIONS); add a file that begins with `view: NAME`"
        )
    return [loaded_view.view for loaded_view in loaded_views]


class Views:
    """All views, by name, once they have started."""

    def __init__(
        self, settings: ViewSettings, declarations: list[View], registry: PipeRegistry, health: Health
    ) -> None:
        """Nothing runs before `start`.

        Args:
            settings: of the service.
            declarations: of the views.
            registry: of the pipes.
            health: of the service.
        """
        self._settings = settings
        self._registry = registry
        self._clock = ViewClock()
        self.by_name: Mapping[str, FollowedView] = {
            view.view: FollowedView(settings, view, registry, health, self._clock) for view in declarations
        }
        self._lock: IO[str] | None = None

    async def start(self) -> None:
        """Take the folder of the files.

        Raises:
            Misconfigured: another process has the folder, or it cannot be written.
        """
        folder = self._settings.view_data
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for view in self.by_name.values():
                view.admit_file()
        except BlockingIOError:
            raise Misconfigured(
                f"another process uses the folder {folder} (HIFI_VIEW_DATA); give each instance its own"
            ) from None
        except OSError as error:
            raise Misconfigured(f"the folder {folder} (HIFI_VIEW_DATA) cannot be written: {error}") from None

    async def stop(self) -> None:
        """Give the folder back."""
        if self._lock is not None:
            self._lock.close()

    async def run(self) -> None:
        """Follow all topics until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for view in self.by_name.values():
                tasks.create_task(view.run())
            for viewed_topic in sorted({view.view.from_.at for view in self.by_name.values()}):
                partitions = self._registry.partition_count()
                views = [view for view in self.by_name.values() if view.view.from_.at is viewed_topic]
                tasks.create_task(
                    CutReader(self._settings, viewed_topic, partitions, views, self._clock).run()
                )
