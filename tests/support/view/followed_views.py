"""Views whose topics nobody reads: the tests write their files."""

from pathlib import Path
from typing import Any

from tests.support.view.row_records import LOGS, data, headers, view

from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_view.read.followed_view import FollowedView
from hifi_view.settings import ViewSettings
from hifi_view.store.events import EventReader
from hifi_view.store.plan import PartitionRead


def followed(folder: Path, **changes: Any) -> FollowedView:
    """A view with its file in a folder; nothing is opened."""
    health = Health("view", "view")
    registry = PipeRegistry("127.0.0.1:9", Topics("s"), health)
    return FollowedView(ViewSettings(view_data=folder), view(**changes), registry, health)


async def opened(folder: Path) -> FollowedView:
    """A view whose file is open."""
    view_in_use = followed(folder)
    view_in_use.admit_file()
    await view_in_use._open(LOGS)
    return view_in_use


async def closed(view_in_use: FollowedView) -> None:
    """Close the file."""
    await view_in_use._in_thread(view_in_use._close)


def apply(
    view_in_use: FollowedView,
    flights: list[str],
    first: int,
    *,
    expired_before_us: int = 0,
    notes: bool = True,
    **fields: Any,
) -> int:
    """Apply one event for each flight, in one batch.

    Args:
        view_in_use: its file is open.
        flights: keys of the events.
        first: offset of the first event.
        expired_before_us: as of `plan`.
        notes: whether the view knows yet that the batch was committed.
        fields: of each event.

    Returns:
        The next offset.
    """
    row_file = view_in_use._file
    assert row_file is not None
    reader, next_offset = EventReader(view_in_use.view), first + len(flights)
    records = [
        (offset, reader.read(headers(offset), data(flight=flight, **fields), 0, offset))
        for offset, flight in enumerate(flights, first)
    ]
    row_file.apply([PartitionRead(0, first, next_offset, records)], expired_before_us)
    if notes:
        view_in_use._positions[0] = next_offset
        view_in_use.change, view_in_use.rows = row_file.change, row_file.rows
    return next_offset
