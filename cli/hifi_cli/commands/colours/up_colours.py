"""hifi up --colours: run two meshes of one stream and the front before them."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hifi.errors import Misconfigured
from hifi_cli.commands.check import load_checked_pipes
from hifi_cli.display.console import console
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_infra.colours.colour_mesh import ColourAddress
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.haproxy import find_haproxy
from hifi_infra.mesh.plan import Trigger, read_scale

READY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """Options of `hifi up` that both colours get.

    Attributes:
        partitions: of each event topic; None: as many as the stream has, else 4.
        trigger: of enrich.
        scale: numbers of instances, such as `egest=2`.
    """

    partitions: int | None = None
    trigger: Trigger = "auto"
    scale: tuple[str, ...] = ()


def refuse_with_colours(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go with two colours.

    Raises:
        Misconfigured: one of them is given.
    """
    given = [name for name, value in options.items() if value]
    if given:
        raise Misconfigured(
            f"--colours does not go with {', '.join(given)}: each colour has a Kafka of its own with one broker, "
            "and runs without the services of the control plane"
        )


def mesh_command(
    stream: str, pipes: Path | None, options: MeshOptions
) -> Callable[[ColourAddress], list[str]]:
    """The command that runs the mesh of a colour, given its address."""

    def command(address: ColourAddress) -> list[str]:
        """`hifi up` on the colour's folder and ports."""
        argv = [
            sys.executable,
            "-P",
            "-m",
            "hifi_cli",
            "up",
            "--data",
            str(address.folder),
            "--stream",
            stream,
        ]
        argv += ["--port", str(address.port), "--console-port", str(address.console_port)]
        argv += ["--trigger", options.trigger]
        argv += ["--pipes", str(pipes.resolve())] if pipes else []
        argv += ["--partitions", str(options.partitions)] if options.partitions else []
        return argv + [part for one in options.scale for part in ("--scale", one)]

    return command


def up_colours(data: Path, stream: str, port: int, pipes: Path | None, options: MeshOptions) -> None:
    """Run two colours until Ctrl-C.

    Raises:
        HifiError: as `ColouredStream.start` and `wait_ready`.
    """
    find_haproxy()
    read_scale(options.scale)
    if pipes:
        load_checked_pipes(pipes, options.trigger, quick=False, passed=data / "checked")
    plan = ColouredPlan(data, stream, port, mesh_command(stream, pipes, options), options.trigger)
    log_to(data / "logs" / "colours.log")
    asyncio.run(_run(ColouredStream(plan)))


async def _run(running: ColouredStream) -> None:
    interrupts = Interrupts()
    with interrupts.handle_signals():
        try:
            console.print("Starting two colours; logs are in", running.plan.data / "logs", highlight=False)
            await interrupts.run(running.start())
            await interrupts.run(running.wait_ready(READY_S))
            _announce(running)
            await interrupts.wait_for_signal()
        except Interrupted:
            pass
        finally:
            await _stop(running, interrupts)
    console.print("Both colours have stopped.", highlight=False)


async def _stop(running: ColouredStream, interrupts: Interrupts) -> None:
    try:
        await interrupts.run(running.stop(), until_signal=2)
    except Interrupted:
        await running.kill()
    except BaseException:
        await running.kill()
        raise


def _announce(running: ColouredStream) -> None:
    found = running.colours
    lines: Sequence[str] = [
        f"[bold green]Ready.[/] Send events to [bold]{found.url}[/]",
        *(
            f"{name}: {one.state.value}, {one.share / 100:g} % of the requests, console {one.observe}, "
            f"data {running.plan.folder(name)}"
            for name, one in found.colours.items()
        ),
        "`hifi colour status` shows both colours, `hifi colour --help` how to change their shares.",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
