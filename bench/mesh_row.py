"""Measures one row with a mesh of its own: starts it, warms it up, measures and stops it, within a bound."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cases import Case, make_load_test, tell, with_load_test

from hifi_cli.demo.load_test import LoadTest
from hifi_cli.rate.event_load import EventLoad
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.rating import Rating
from hifi_cli.rate.step import RateStep, step_report

WARM_UP_S = 30.0
"""Java compiles hot code for about this long; before that, an event costs a multiple."""
SECONDS, STEPS = 8.0, 2
SLO_MS = 60_000.0
"""Rows measure the cost of a load; whether lag stays within a second is what ratings measure."""
LIMIT_S = 900.0
Keep = Callable[[str, Mapping[str, Any]], None]
"""Called with the name and the result of each row as soon as it is measured."""


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
    """Measure the cost of a load on a warm mesh of its own. A failure becomes the row's result."""
    print(f"{name}: starting", flush=True)

    async def work(load_test: LoadTest) -> None:
        rating = rating_of(load_test, load, case.first)
        warm_up = await rating.begin(WARM_UP_S)
        print(f"{name}: ready after {rating.start_seconds:.1f} s, warm", flush=True)
        keep(name, row_report(rating, warm_up, await steps(rating, case.first, count, seconds)))

    attempt(
        keep,
        name,
        lambda: with_load_test(lambda folder: make_load_test(case, folder, secrets), work, LIMIT_S),
    )


def attempt(keep: Keep, name: str, work: Callable[[], None]) -> None:
    """Run a measurement; an error becomes the row's result, and later rows run all the same."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - any error is reported, and the other rows are worth having
        print(f"{name}: FAILED: {error!r}", flush=True)
        keep(name, {"failed": str(error) or repr(error)})


def rating_of(load_test: LoadTest, load: EventLoad, rate: float) -> Rating:
    """A rating that runs steps at one rate."""
    return Rating(load_test, RateSearch(rate, 2, 1), load, SECONDS, SLO_MS, tell)


async def steps(rating: Rating, rate: float, count: int = STEPS, seconds: float = SECONDS) -> list[RateStep]:
    """Run several steps at the same rate; prints each one as it ends."""
    rate_steps = []
    for _ in range(count):
        rate_steps.append(step := await rating.step(rate, seconds))
        tell(step, step_report(step, SLO_MS)["failed"])
    return rate_steps


def row_report(rating: Rating, warm_up: RateStep, rate_steps: Iterable[RateStep]) -> dict[str, Any]:
    """A step for JSON."""
    mesh = rating.load_test.mesh
    return {
        "start_seconds": round(rating.start_seconds, 1),
        "partitions": mesh.partitions,
        "instances": {name: len(service_instances) for name, service_instances in mesh.instances.items()},
        "warm_up": step_report(warm_up, SLO_MS),
        "steps": [step_report(step, SLO_MS) for step in rate_steps],
    }
