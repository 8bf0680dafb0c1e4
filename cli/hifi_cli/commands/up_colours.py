"""hifi up --colours: run two meshes of one stream and the front before them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hifi.delivery.colours import ColourState
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.runtime.errors import Misconfigured
from hifi_cli.commands.check import load_checked_pipes
from hifi_cli.commands.console import print_console_link
from hifi_cli.display.console import console
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.mesh_state.colour_command import READY_S, MeshOptions, mesh_command
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.haproxy_program import ensure_haproxy
from hifi_infra.mesh.plan import read_scale


def refuse_with_colours(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go with two colours.

    Raises:
        Misconfigured: one of them is given.
    """
    options_set = [name for name, value in options.items() if value]
    if options_set:
        raise Misconfigured(
            f"--colours does not go with {', '.join(options_set)}: each colour has a Kafka of its own with one broker, "
            "and runs without the services of the control plane"
        )


def up_colours(
    data: Path,
    stream: str,
    ports: tuple[int, ...],
    pipes: Path | None,
    options: MeshOptions,
    split_above: float,
) -> None:
    """Run two colours until Ctrl-C, with a front on each port.

    Raises:
        HifiError: as `ColouredStream.start` and `wait_ready`, or a pipe has a destination that would lose events.
    """
    if pipes:
        require_fit_for_colours(
            load_checked_pipes(pipes, options.trigger, quick=False, passed_folder=data / "checked")
        )
    ensure_haproxy()
    read_scale(options.scale)
    command = mesh_command(stream, pipes, options)
    plan = ColouredPlan(data, stream, ports, command, options.trigger, split_above)
    log_to(data / "logs" / "colours.log")
    asyncio.run(_run(ColouredStream(plan)))


async def _run(stream: ColouredStream) -> None:
    interrupts = Interrupts()
    with interrupts.handle_signals():
        try:
            console.print("Starting two colours; logs are in", stream.plan.data / "logs", highlight=False)
            await interrupts.run(stream.start())
            await interrupts.run(stream.wait_ready(READY_S))
            _announce(stream)
            await interrupts.run(stream.follow())
        except Interrupted:
            pass
        finally:
            await _stop(stream, interrupts)
    console.print("Both colours have stopped.", highlight=False)


async def _stop(stream: ColouredStream, interrupts: Interrupts) -> None:
    try:
        await interrupts.run(stream.stop(), until_signal=2)
    except Interrupted:
        await stream.kill()
    except BaseException:
        await stream.kill()
        raise


def _announce(stream: ColouredStream) -> None:
    colours = stream.colours
    token = read_token(stream.plan.token)
    lines: Sequence[str] = [
        f"[bold green]Ready.[/] Send events to [bold]{' or '.join(front.url for front in colours.fronts)}[/]",
        *(
            f"{name}: {colour.state.value}, {colour.share / 100:g} % of the requests, "
            f"data {stream.plan.folder(name)}"
            for name, colour in colours.colours.items()
        ),
        "`hifi colour status` shows both colours, `hifi colour --help` how to change their shares.",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    for name, colour in colours.colours.items():
        if colour.state is not ColourState.ASLEEP:
            print_console_link(f"Console of {name}:", ObserveApi(colour.observe, token))
