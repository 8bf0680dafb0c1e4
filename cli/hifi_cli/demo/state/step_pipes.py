"""The pipes of the demo: flights, weather, and steps with windows, with a result for each flight, and with a join."""

from typing import Any, Final

from hifi.pipe.model import Pipe
from hifi_cli.demo.state.day_events import FLIGHTS, WEATHER
from hifi_cli.demo.state.oracle import EachStep, ExpectedStep, JoinStep, WindowStep

WRITE_KEYS: Final = {FLIGHTS: "FLIGHTS_KEY", WEATHER: "WEATHER_KEY"}
"""Pipe to the environment variable that holds its write key."""
_MINUTE_MS: Final = 60_000
LATENESS_S: Final = 1830
"""Half a minute more than half an hour. Events have whole minutes, so a watermark that rises some seconds while a
partition is idle decides nothing."""
CARRIERS: Final = WindowStep("carrier-delays", LATENESS_S * 1000, "carrier", 10 * _MINUTE_MS)
AIRPORTS: Final = EachStep("airport-velocity", (LATENESS_S + 1800) * 1000, "origin", 60 * _MINUTE_MS)
DEPARTURES: Final = JoinStep("departure-weather", LATENESS_S * 1000, "origin", 60 * _MINUTE_MS)
STEPS: Final[tuple[ExpectedStep, ...]] = (CARRIERS, AIRPORTS, DEPARTURES)
_TOTALS: Final = {
    "flights": "count(*)",
    "late": "count_if(delay >= 15)",
    "total": "sum(delay)",
    "worst": "max(delay)",
    "mean": "avg(delay)",
}


def step_pipes(destination_port: int) -> list[Pipe]:
    """The pipes, whose destinations are paths of one HTTP server with the names of the pipes."""
    url = f"http://127.0.0.1:{destination_port}"
    flight_fields = {"carrier": "string", "origin": "string", "delay": "int"}
    weather_fields = {"origin": "string", "temp": "double", "wind": "double"}
    pipes = [
        _sent(FLIGHTS, "plane", {"fields": flight_fields, "derive": {"cancelled": "delay IS NULL"}}),
        _sent(WEATHER, "origin", {"fields": weather_fields}),
        _step(CARRIERS, {"window": {"tumbling": _seconds(CARRIERS)}, "fields": _TOTALS}),
        _step(AIRPORTS, {"each": {"trailing": _seconds(AIRPORTS)}, "fields": _TOTALS}),
        _step(
            DEPARTURES,
            {
                "fields": {"carrier": "carrier", "delay": "delay"},
                "join": {
                    "with": WEATHER,
                    "within": _seconds(DEPARTURES),
                    "fields": {"temp": "temp", "wind": "wind"},
                    "unmatched": "keep",
                },
            },
        ),
    ]
    return [
        Pipe.model_validate(pipe | {"destinations": [{"name": "board", "url": f"{url}/{pipe['pipe']}"}]})
        for pipe in pipes
    ]


def _sent(name: str, partition_key: str, enrich: dict[str, Any]) -> dict[str, Any]:
    """A pipe whose events are sent."""
    source = {
        "keys": [{"env": WRITE_KEYS[name]}],
        "formats": ["json"],
        "id": "id",
        "time": "at",
        "partition_key": partition_key,
    }
    return {"pipe": name, "source": source, "enrich": enrich}


def _step(step: ExpectedStep, kind: dict[str, Any]) -> dict[str, Any]:
    source = {
        "kind": "step",
        "from": FLIGHTS,
        "where": "NOT cancelled",
        "key": {step.key: "string"},
        "lateness": f"{step.lateness_ms // 1000}s",
    }
    return {"pipe": step.name, "source": source | kind}


def _seconds(step: ExpectedStep) -> str:
    return f"{step.length_ms // 1000}s"
