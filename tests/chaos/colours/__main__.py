"""`python -m tests.chaos.colours`: changes a stream with two colours under load, one change after the other.

Each change is made as a person makes it: the idle colour falls asleep, wakes on its new setup, and gets every request.
The logs of sender and destination, and observe over both colours, tell what became of the events meanwhile. Exit 1 when
an event is lost or repeated, a minute is down, or the p95 lag rises too far.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from tests.chaos.chaos_run import console
from tests.chaos.colours.changes import ColourChange, colour_changes, write_release
from tests.chaos.colours.outcome import MINUTE_NS, ChangeWindow, outcome

from hifi.delivery.colours import WHOLE_SHARE, other
from hifi_cli.demo.colours.coloured_load import ColouredLoad
from hifi_cli.demo.load_test import LoadProcesses
from hifi_cli.demo.tour_parts import PartFailed, TourParts, require
from hifi_cli.demo.workspace import Workspace
from hifi_cli.log_file import log_to
from hifi_cli.mesh_state.colour_command import READY_S
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token

SHIFT: Final = "shift"
SETTLE_S: Final = 15
MOST_S: Final = 3600
WITHIN_S: Final = 300.0
PIPE: Final = "flights"
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class ColourChanges:
    """Makes the changes.

    Attributes:
        run: the colours with their load.
        changes: name to change.
        measured_s: how long before the first change, and after each one, is measured, seconds.
    """

    run: ColouredLoad
    changes: Mapping[str, ColourChange]
    measured_s: float
    windows: list[ChangeWindow] = field(default_factory=list)
    _active: str = "blue"

    async def make(self, names: Sequence[str]) -> None:
        """Make the changes one after the other.

        Raises:
            PartFailed: one did not show what it should.
        """
        await self.run.start()
        async with self.run.sending():
            await self.run.until_gets(self._active)
            await self.run.until_stable()
            await asyncio.sleep(self.measured_s)
            for name in names:
                with self.run.parts.part(name) as observations:
                    await self.run.until_stable()
                    window = ChangeWindow(name, time.time_ns(), seen=observations)
                    self.windows.append(window)
                    await (self._shift_and_back() if name == SHIFT else self._change(window))
                    await asyncio.sleep(self.measured_s)
                    window.ended_ns = time.time_ns()
                    await self._observe(window)

    async def _shift_and_back(self) -> None:
        for name in (other(self._active), self._active):
            await self._shift_to(name)

    async def _change(self, window: ChangeWindow) -> None:
        change, idle = self.changes[window.name], other(self._active)
        window.parts["sleep"] = window.began_ns
        await self.run.operations.sleep(idle, window.name, WITHIN_S, self.run.tell)
        window.parts["wake"] = time.time_ns()
        await self.run.operations.wake(idle, window.name, READY_S, change.setup)
        window.parts["settle"] = time.time_ns()
        observation = await change.seen(self.run.stream.plan.folder(idle))
        require(bool(observation), f"{idle} does not run on {change.setup}")
        window.seen.append(
            f"{idle}: {observation}, ready after {(time.time_ns() - window.began_ns) / _NS:.0f} s"
        )
        await self.run.until_stable()
        window.parts["shift"] = time.time_ns()
        await self._shift_to(idle)
        window.parts["after"] = time.time_ns()

    async def _shift_to(self, name: str) -> None:
        await self.run.until_stable()
        await self.run.shift(green=WHOLE_SHARE * (name == "green"))
        await self.run.until_gets(name)
        self._active = name

    async def _observe(self, window: ChangeWindow) -> None:
        """Wait until both colours have closed the last minute of the change, and keep its minutes."""
        first_minute, last_minute = window.began_ns // MINUTE_NS, window.ended_ns // MINUTE_NS

        async def rows() -> list[dict[str, Any]]:
            """The closed minutes of the change over both colours."""
            url = self.run.stream.colours.colours[self._active].observe
            count = time.time_ns() // MINUTE_NS - first_minute + 1
            path = f"/api/v1/pipes/{PIPE}/colours?last={count}"
            answer = await asyncio.to_thread(
                ObserveApi(url, read_token(self.run.stream.plan.token)).get, path
            )
            return [row for row in answer["minutes"] if first_minute <= row["minute"] <= last_minute]

        window.observed = await self.run.parts.until(
            rows,
            lambda minutes: (
                bool(minutes) and minutes[-1]["minute"] == last_minute and not minutes[-1]["missing"]
            ),
            lambda minutes: f"{len(minutes)} of {last_minute - first_minute + 1} minutes are closed",
        )


def main(
    names: Annotated[
        list[str] | None,
        typer.Option("--change", help="Make only this change; may be repeated, in the order of the options."),
    ] = None,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 50,
    measured: Annotated[
        float, typer.Option(help="Seconds that are measured before and after each change.")
    ] = 30,
    ratio: Annotated[float, typer.Option(help="Highest p95 lag, relative to that before the change.")] = 1.2,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
) -> None:
    """Change two colours under load, and compare the request logs."""
    with tempfile.TemporaryDirectory(prefix="hifi-colours-") as temporary:
        folder = Path(temporary)
        log_to(folder / "runner.log")
        changes = colour_changes(folder)
        chosen_changes = names or [SHIFT, *changes]
        if unknown := set(chosen_changes) - {SHIFT, *changes}:
            raise typer.BadParameter(f"{', '.join(unknown)}: expected {SHIFT}, {', '.join(changes)}")
        write_release(folder)
        line = {"rate": rate, **asyncio.run(_run(folder, changes, chosen_changes, rate, measured, ratio))}
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if line["failures"] else 0)


async def _run(
    folder: Path,
    changes: Mapping[str, ColourChange],
    names: Sequence[str],
    rate: float,
    measured_s: float,
    ratio: float,
) -> dict[str, Any]:
    data = folder / "data"
    data.mkdir()
    load = LoadProcesses(Workspace.at(data))
    coloured_load = ColouredLoad(
        load, rate, "auto", TourParts(console.print), {"HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)}
    )
    colour_changes = ColourChanges(coloured_load, changes, measured_s)
    try:
        await coloured_load.prepare(MOST_S)
        with contextlib.suppress(PartFailed):
            await colour_changes.make(names)
        comparison = await coloured_load.compared()
        outcome_of_run = outcome(
            coloured_load.parts.ended,
            colour_changes.windows,
            coloured_load.sent(),
            comparison,
            coloured_load.expected,
            measured_s,
            ratio,
        )
        await coloured_load.stop()
        return outcome_of_run
    finally:
        await coloured_load.kill()


if __name__ == "__main__":
    typer.run(main)
