"""Show the progress of a load test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from hifi_cli.demo.load_test import LoadTest
from hifi_cli.display.console import errors

REDRAW_S: Final = 0.2


@contextlib.asynccontextmanager
async def show_progress(load_test: LoadTest) -> AsyncIterator[None]:
    """Show progress bars while the block runs; without a terminal, print one line for each phase."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    if not errors.is_terminal:
        task = asyncio.create_task(_lines(load_test))
    else:
        bars = Bars(*columns, TextColumn("[yellow]{task.fields[detail]}"), console=errors, transient=True)
        bars.start()
        task = asyncio.create_task(_bars(load_test, bars))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if errors.is_terminal:
            bars.stop()


async def _bars(load_test: LoadTest, bars: Bars) -> None:
    start_bar = bars.add_task("starting", total=None, detail="")
    send_bar = bars.add_task("sent", total=None, detail="", visible=False)
    arrival_bar = bars.add_task("arrived", total=None, detail="", visible=False)
    while True:
        progress, mesh = load_test.progress, load_test.mesh
        if progress.sent == 0 and progress.phase != "sending":
            count = sum(instance.ready for instance in mesh.all())
            unready_names = ", ".join(instance.name for instance in mesh.all() if not instance.ready)
            detail = f"{mesh.phase}; not ready: {unready_names}" if unready_names else progress.phase
            bars.update(
                start_bar, total=sum(1 for _ in mesh.all()) or None, completed=count, detail=escape(detail)
            )
        else:
            bars.update(start_bar, visible=False)
            bars.update(send_bar, visible=True, total=progress.total, completed=progress.sent)
            detail = f"{progress.phase}: {progress.missing:,}" if progress.missing else progress.phase
            bars.update(arrival_bar, visible=True, total=None, completed=progress.arrived, detail=detail)
        await asyncio.sleep(REDRAW_S)


async def _lines(load_test: LoadTest) -> None:
    printed_phase = ""
    while True:
        phase = (
            load_test.progress.phase
            if load_test.mesh.phase in ("not started", "running")
            else load_test.mesh.phase
        )
        if phase != printed_phase:
            printed_phase = phase
            errors.print(phase, highlight=False)
        await asyncio.sleep(REDRAW_S)
