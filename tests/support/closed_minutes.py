"""Reads the minutes of a run from observe's API."""

import time
from typing import Any, Final

import orjson
import urllib3
from tests.support.observe_principal import signed

from hifi_infra.mesh.plan import Plan

CLOSED_S: Final = 180.0
_AMENDED_S: Final = 6.0
"""Amendments of closed minutes are published every 5 s."""


def closed_minutes(plan: Plan, pipe: str, last: int) -> tuple[list[dict[str, Any]], str | None]:
    """Every minute of a pipe, once all up to `last` are closed. Blocks up to `CLOSED_S` seconds.

    Args:
        plan: of the mesh, which has observe.
        pipe: name of the pipe.
        last: minute, in minutes since 1970.

    Returns:
        The minutes of the last four hours, and why not all are closed; None: all are closed.
    """
    url, headers = f"{plan.console}/api/v1", signed(plan)
    end_s = time.monotonic() + CLOSED_S
    reason = None
    while ((status := _get(f"{url}/status", headers))["closed_minute"] or 0) < last:
        if time.monotonic() > end_s:
            reason = f"minute {last} is not closed within {CLOSED_S:.0f} s: {status}"
            break
        time.sleep(1)
    time.sleep(_AMENDED_S)
    return _get(f"{url}/pipes/{pipe}/minutes?last=240", headers)["minutes"], reason


def _get(url: str, headers: dict[str, str]) -> Any:
    return orjson.loads(urllib3.request("GET", url, headers=headers, retries=False, timeout=10).data)
