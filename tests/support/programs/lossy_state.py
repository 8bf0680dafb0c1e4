"""The service state with a planted defect: of one event, the part of its window is lost.

Arguments: partition and offset in `enriched`.
"""

import sys

from pyspark.sql import DataFrame

from hifi_state.__main__ import main
from hifi_state.fold.range_folder import RangeFolder


def lose(partition: int, offset: int) -> None:
    """Leave an event out of the windows, although it was judged to count."""
    grouped = RangeFolder.grouped

    def lossy(folder: RangeFolder, events: DataFrame) -> DataFrame:
        return grouped(folder, events.filter(f"not (partition = {partition} and offset = {offset})"))

    setattr(RangeFolder, "grouped", lossy)  # noqa: B010 - mypy refuses the assignment of a method


if __name__ == "__main__":
    lose(int(sys.argv[1]), int(sys.argv[2]))
    main()
