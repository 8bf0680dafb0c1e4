"""The rated cases. Each one is a run of its own in a temporary folder, with no other work beside it."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from chain import Chain, ChainLoadTest

from hifi.runtime.errors import Retryable
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_cli.log_file import log_to
from hifi_cli.rate.event_load import EventLoad
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.rating import Rating
from hifi_cli.rate.report import line, report
from hifi_cli.rate.step import RateStep
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, Trigger
from hifi_infra.ports import free_port

T = TypeVar("T")
ONE_STEP_S = 240.0
"""Bound on start, warm-up and one step."""


@dataclass(frozen=True)
class Case:
    """A rated case. `kind`: the trigger of the mesh, or the form of the chain."""

    kind: str
    batch: int = 1
    first: float = 500
    factor: float = 2
    size: tuple[int, int] = (0, 0)
    plan: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    max_tries: int = 20


LASTING: Final = {"HIFI_ENRICH_COMPILE": "throughput"}
"""Settings for high throughput over hours, which is what a rating measures."""
CASES = {
    "mesh, micro-batch, single events": Case("micro-batch", env=LASTING),
    "mesh, micro-batch, batches of 100": Case("micro-batch", 100, first=1000, env=LASTING),
    "mesh, real-time, single events": Case("real-time", env=LASTING),
    "mesh, real-time, batches of 100": Case("real-time", 100, first=1000, env=LASTING),
    "FastStream, single messages, single events": Case("single", first=125),
    "FastStream, tuned batches, single events": Case("batch"),
    "FastStream, tuned batches, batches of 100": Case("batch", 100, first=2000),
    "mesh, real-time, single events of 200 B to 64 KiB": Case(
        "real-time", size=(200, 65536), first=125, env=LASTING
    ),
    "FastStream, tuned batches, single events of 200 B to 64 KiB": Case(
        "batch", size=(200, 65536), first=125
    ),
}


def rate(case: Case, seconds: float, slo_ms: float = 1000) -> dict[str, Any]:
    """Run a case; returns the report of `hifi rate`."""

    async def work(load_test: LoadTest) -> dict[str, Any]:
        ladder = RateSearch(case.first, case.factor, case.max_tries)
        rating = Rating(load_test, ladder, EventLoad(case.batch, *case.size), seconds, slo_ms, tell)
        await rating.run()
        return report(rating, os.cpu_count() or 1, None)

    return with_load_test(lambda folder: make_load_test(case, folder), work)


def make_load_test(
    case: Case, folder: Path, secrets: Mapping[str, str] | None = None, workspace: Workspace | None = None
) -> LoadTest:
    """The load test of a case, not started."""
    workspace = workspace or Workspace.at(folder)
    log_to(folder / "mesh.log")
    if case.kind in ("single", "batch"):
        return ChainLoadTest(workspace, Chain(workspace, case.kind, case.batch))
    observe_port = free_port(but={workspace.ingest_port, workspace.destination_port})
    settings = {"scale": {"observe": 1}} | dict(case.plan)
    mesh = Mesh(
        Plan(
            folder,
            port=workspace.ingest_port,
            console_port=observe_port,
            trigger=cast("Trigger", case.kind),
            env={**workspace.secrets, **case.env, **(secrets or {})},
            **settings,
        )
    )
    mesh.prepare()
    return LoadTest(workspace, mesh)


def one_step(case: Case, seconds: float, warm_up_s: float) -> RateStep:
    """Run a case at its first rate only, after a warm-up."""

    async def work(load_test: LoadTest) -> RateStep:
        rating = Rating(
            load_test, RateSearch(case.first, 2), EventLoad(case.batch, *case.size), seconds, 60_000, tell
        )
        await rating.begin(warm_up_s)
        return await rating.step(case.first, seconds)

    return with_load_test(lambda folder: make_load_test(case, folder), work, ONE_STEP_S)


def with_load_test(
    make: Callable[[Path], LoadTest], work: Callable[[LoadTest], Awaitable[T]], limit_s: float | None = None
) -> T:
    """Run a measurement with a load test in a temporary folder, which is removed at the end.

    Raises:
        HifiError: it failed, or was not over within the limit, seconds.
    """
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_with_load_test(make, work, Path(folder), limit_s))


async def _with_load_test(
    make: Callable[[Path], LoadTest],
    work: Callable[[LoadTest], Awaitable[T]],
    folder: Path,
    limit_s: float | None,
) -> T:
    load_test = make(folder)
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await work(load_test)
    except Exception as error:
        show_logs(folder)
        if limit.expired():
            phases = f"mesh: {load_test.mesh.phase}; load: {load_test.progress.phase}"
            raise Retryable(f"not over within {limit_s:.0f} s ({phases})") from error
        raise
    finally:
        await load_test.kill()
        await asyncio.get_running_loop().shutdown_default_executor()


def show_logs(folder: Path) -> None:
    """Print the end of each log of a failed run, since its folder is removed."""
    for log in sorted((folder / "logs").glob("*.log")):
        print(
            f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-8:], sep="\n", file=sys.stderr
        )


def tell(step: RateStep, reason: str | None) -> None:
    print(line(step, reason), flush=True)
