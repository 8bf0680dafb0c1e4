"""A defect for services that start with this folder in PYTHONPATH: each destination misses the event `lost-<name>`.

No receipt is written and the offset is completed, as if the writer had forgotten the event.
"""

import sys
from typing import Any


def _plant_in_egest() -> None:
    from hifi_egest.intake import DeliveryIntake

    offer = DeliveryIntake._offer

    def forget(self: Any, owned: Any, event: Any, deferral: Any) -> Any:
        for name in list(event.destinations):
            if b'"lost-%b"' % name in (event.record.value or b""):
                event.destinations.remove(name)
                event.delivery_completed()
        return offer(self, owned, event, deferral)

    DeliveryIntake._offer = forget  # type: ignore[method-assign, assignment]


def _plant_in_lake() -> None:
    from hifi_lake.batch import processor
    from hifi_lake.batch.deliveries import deliveries

    def forget(*arguments: Any) -> Any:
        return deliveries(*arguments).filter(
            "instr(cast(value as string), concat('\"lost-', destination, '\"')) = 0"
        )

    vars(processor)["deliveries"] = forget


if "hifi_egest" in sys.orig_argv:
    _plant_in_egest()
if "hifi_lake" in sys.orig_argv:
    _plant_in_lake()
