"""The pipes of the demo: flights, a step with windows that follow each other, and one with windows that overlap."""

from typing import Any, Final

from hifi.pipe.model import Pipe
from hifi_cli.demo.state.oracle import ExpectedStep

FLIGHTS: Final = "flights"
_MINUTE_MS: Final = 60_000
LATENESS_S: Final = 1830
"""Half a minute more than half an hour. Flights have whole minutes, so a watermark that rises some seconds while a
partition is idle decides nothing."""
CARRIERS: Final = ExpectedStep(
    "carrier-delays", "carrier", 10 * _MINUTE_MS, 10 * _MINUTE_MS, LATENESS_S * 1000
)
AIRPORTS: Final = ExpectedStep(
    "airport-delays", "origin", 60 * _MINUTE_MS, 15 * _MINUTE_MS, (LATENESS_S + 1800) * 1000
)
STEPS: Final = (CARRIERS, AIRPORTS)
_FIELDS: Final = {
    "flights": "count(*)",
    "late": "count_if(delay >= 15)",
    "total": "sum(delay)",
    "worst": "max(delay)",
    "mean": "avg(delay)",
}


def step_pipes(destination_port: int) -> list[Pipe]:
    """The pipes, whose destinations are paths of one HTTP server with the names of the pipes."""
    url = f"http://127.0.0.1:{destination_port}"
    flights: dict[str, Any] = {
        "pipe": FLIGHTS,
        "source": {
            "keys": [{"env": "FLIGHTS_KEY"}],
            "formats": ["json"],
            "id": "id",
            "time": "at",
            "partition_key": "plane",
        },
        "enrich": {
            "fields": {"carrier": "string", "origin": "string", "delay": "int"},
            "derive": {"cancelled": "delay IS NULL"},
        },
        "destinations": [_destination(url, FLIGHTS)],
    }
    return [Pipe.model_validate(flights), *(Pipe.model_validate(_step(url, step)) for step in STEPS)]


def _step(url: str, step: ExpectedStep) -> dict[str, Any]:
    size_s, every_s = step.size_ms // 1000, step.every_ms // 1000
    window = (
        {"tumbling": f"{size_s}s"} if size_s == every_s else {"size": f"{size_s}s", "every": f"{every_s}s"}
    )
    return {
        "pipe": step.name,
        "source": {
            "kind": "step",
            "from": FLIGHTS,
            "where": "NOT cancelled",
            "key": {step.key: "string"},
            "window": window,
            "lateness": f"{step.lateness_ms // 1000}s",
            "fields": _FIELDS,
        },
        "destinations": [_destination(url, step.name)],
    }


def _destination(url: str, pipe: str) -> dict[str, str]:
    return {"name": "board", "url": f"{url}/{pipe}"}
