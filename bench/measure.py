"""One mesh of its own for one row: started, warmed up, measured, ended within a bound."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cases import Case, in_scene, scene, tell

from hifi_cli.demo.load_test import LoadTest
from hifi_cli.rate.event_load import EventLoad
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.run import Rating
from hifi_cli.rate.step import RateStep, step_report

WARM_UP_S = 30.0
"""Java compiles what is used often for about so long; before, an event costs a multiple."""
SECONDS, STEPS = 8.0, 2
SLO_MS = 60_000.0
"""Rows show what a load costs; whether it is held within a second is what ratings are for."""
LIMIT_S = 900.0
Keep = Callable[[str, Mapping[str, Any]], None]
"""Takes a row's name and what was found as soon as it is there."""


def row(
    keep: Keep,
    name: str,
    load: EventLoad,
    case: Case,
    secrets: Mapping[str, str] | None = None,
    *,
    count: int = STEPS,
    seconds: float = SECONDS,
) -> None:
    """A row of its own mesh: what the load costs once the mesh is warm. A failure is kept as such."""
    print(f"{name}: starting", flush=True)

    async def work(made: LoadTest) -> None:
        rating = rating_of(made, load, case.first)
        warm_up = await rating.begin(WARM_UP_S)
        print(f"{name}: ready after {rating.start_seconds:.1f} s, warm", flush=True)
        keep(name, described(rating, warm_up, await steps(rating, case.first, count, seconds)))

    attempt(keep, name, lambda: in_scene(lambda folder: scene(case, folder, secrets), work, LIMIT_S))


def attempt(keep: Keep, name: str, work: Callable[[], None]) -> None:
    """Do it; what goes wrong is the row's result, and the rows after it go on."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the other rows are worth having
        print(f"{name}: FAILED: {error!r}", flush=True)
        keep(name, {"failed": str(error) or repr(error)})


def rating_of(made: LoadTest, load: EventLoad, rate: float) -> Rating:
    """For steps at one rate."""
    return Rating(made, RateSearch(rate, 2, 1), load, SECONDS, SLO_MS, tell)


async def steps(rating: Rating, rate: float, count: int = STEPS, seconds: float = SECONDS) -> list[RateStep]:
    """Several at the same rate, told as they end."""
    found = []
    for _ in range(count):
        found.append(step := await rating.step(rate, seconds))
        tell(step, step_report(step, SLO_MS)["failed"])
    return found


def described(rating: Rating, warm_up: RateStep, found: Iterable[RateStep]) -> dict[str, Any]:
    """As JSON."""
    mesh = rating.load_test.mesh
    return {
        "start_seconds": round(rating.start_seconds, 1),
        "partitions": mesh.partitions,
        "instances": {name: len(ones) for name, ones in mesh.instances.items()},
        "warm_up": step_report(warm_up, SLO_MS),
        "steps": [step_report(step, SLO_MS) for step in found],
    }
