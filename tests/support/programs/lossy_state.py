"""The service state with a planted defect: of one event, the part of its window is lost.

Arguments: partition and offset in `enriched`.
"""

import sys

from pyspark.sql import DataFrame

from hifi_state.__main__ import main
from hifi_state.fold import event_groups


def lose(partition: int, offset: int) -> None:
    """Leave an event out of the windows, although it was judged to count."""
    started = event_groups._started

    def lossy(frame: DataFrame, starts: str) -> DataFrame:
        return started(frame, f"if(partition = {partition} and offset = {offset}, array(), {starts})")

    event_groups._started = lossy


if __name__ == "__main__":
    lose(int(sys.argv[1]), int(sys.argv[2]))
    main()
