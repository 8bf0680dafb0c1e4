"""Live view of a mesh for a terminal; without a terminal, one line for each change."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from hifi_cli.display.tables import fit, table
from hifi_cli.display.units import count, local_clock, mebibytes
from hifi_cli.mesh_state import service_metrics
from hifi_infra.mesh.instance import Instance
from hifi_infra.mesh.journal import JournalEntry
from hifi_infra.mesh.mesh import Mesh

REDRAW_S: Final = 0.25
MEASURE_S: Final = 2.0
SHOWN_ENTRIES: Final = 6
STOPPING: Final = "Shutting down gracefully. Press Ctrl-C again to end all processes immediately."


class MeshView:
    """Shows the phase, the instances with rates and memory, and the latest log entries."""

    def __init__(self, mesh: Mesh, console: Console, *, footer: str = "") -> None:
        self._mesh = mesh
        self._console = console
        self._footer = footer
        self._began_s = time.monotonic()
        self._phase = mesh.phase
        self._counts: dict[int, service_metrics.ServiceCounters | None] = {}
        self._rates: dict[int, float | None] = {}
        self._memory: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show the view while the block runs."""
        self._mesh.journal.listener = self._on_entry
        live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if self._console.is_terminal
            else None
        )
        tasks = [asyncio.create_task(self._redraw(live))]
        if live is not None:
            tasks.append(asyncio.create_task(self._measure()))
            live.start()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if live is not None:
                live.stop()
            self._mesh.journal.listener = None

    def _on_entry(self, entry: JournalEntry) -> None:
        if not self._console.is_terminal or entry.bad:
            colour = "yellow" if entry.bad else "dim"
            self._console.print(
                f"[{colour}]{local_clock(entry.at_s)} {escape(entry.text)}[/]",
                highlight=False,
                soft_wrap=True,
            )

    async def _redraw(self, live: Live | None) -> None:
        while True:
            if live is not None:
                live.update(self._render(), refresh=True)
            elif self._mesh.phase != self._phase:
                self._phase = self._mesh.phase
                print(f"{local_clock(time.time())} {self._phase}", flush=True)
            await asyncio.sleep(REDRAW_S)

    async def _measure(self) -> None:
        while True:
            counts_before = self._counts
            self._counts = await service_metrics.read_all_counters(
                instance.spec.port for instance in self._mesh.all() if instance.process.running
            )
            for instance in self._mesh.all():
                port = instance.spec.port
                counter = (
                    service_metrics.ACCEPTED if instance.spec.service == "ingest" else service_metrics.READ
                )
                self._rates[port] = service_metrics.per_second(
                    counts_before.get(port), self._counts.get(port), counter
                )
                self._memory[instance.name] = instance.rss_bytes()
            await asyncio.sleep(MEASURE_S)

    def _render(self) -> RenderableType:
        mesh = self._mesh
        kafka = mesh.bootstrap or "starting"
        cluster = f"{mesh.cluster.brokers} broker(s)" if mesh.cluster else "external"
        age = f"{time.monotonic() - self._began_s:,.0f} s"
        head = Text.assemble(
            ("hifi ", "bold"),
            (mesh.phase, "green" if mesh.ready else "yellow"),
            f"  {age}  stream {mesh.plan.stream}  {mesh.plan.trigger}\nKafka {kafka} ({cluster})",
        )
        rows = table("=instance", "=state", ">rate\nev/s", ">memory", ">restarts", "waiting for")
        for instance in mesh.all():
            rows.add_row(*self._row(instance))
        entries = list(mesh.journal.entries)[-SHOWN_ENTRIES:]
        fit(rows, self._console.width)
        latest_entries = [
            Text(f"{local_clock(line.at_s)} {line.text}", style="yellow" if line.bad else "dim")
            for line in entries
        ]
        footer = STOPPING if mesh.phase.startswith("stopping") else self._footer
        return Group(head, rows, *latest_entries, Text(footer, style="dim"))

    def _row(self, instance: Instance) -> list[str]:
        readiness = instance.readiness
        state = f"[green]{readiness.state}[/]" if instance.ready else f"[yellow]{readiness.state}[/]"
        rate = self._rates.get(instance.spec.port)
        return [
            instance.name,
            state,
            count(rate),
            mebibytes(self._memory.get(instance.name, 0)),
            str(instance.restarts),
            escape(instance.misconfiguration or "; ".join(readiness.waiting.values())),
        ]
