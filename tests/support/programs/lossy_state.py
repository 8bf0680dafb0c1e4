"""The service state with a planted defect: of one event, the part of its window is lost.

Arguments: partition and offset in `enriched`.
"""

import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame

from hifi_state.__main__ import main
from hifi_state.fold.range_folder import RangeFolder
from hifi_state.fold.window_row import WindowRow


def lose(partition: int, offset: int) -> None:
    """Leave an event out of the windows, although it was judged to count."""
    window_rows = RangeFolder.window_rows

    def lossy(folder: RangeFolder, events: DataFrame, emitted_ms: int | None) -> Iterator[WindowRow]:
        kept_events = events.filter(f"not (partition = {partition} and offset = {offset})")
        return window_rows(folder, kept_events, emitted_ms)

    setattr(RangeFolder, "window_rows", lossy)  # noqa: B010 - mypy refuses the assignment of a method


if __name__ == "__main__":
    lose(int(sys.argv[1]), int(sys.argv[2]))
    main()
