"""hifi up and hifi down: the whole mesh on this machine."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from hifi.errors import HifiError, Misconfigured
from hifi.pipe.model import Format, Pipe
from hifi_cli.commands.check import checked
from hifi_cli.display.console import console
from hifi_cli.display.mesh_view import View
from hifi_cli.error_reporting import reported
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import DEFAULT_DATA, Data, Kafka, Stream
from hifi_infra.autoscaler.autoscaler import Autoscaler, read_autoscale
from hifi_infra.autoscaler.due_backlog import due_backlog
from hifi_infra.autoscaler.policy import Policy
from hifi_infra.mesh import running
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, Trigger, read_scale

DOWN_S: Final = 300.0
"""Each service drains within 55 s; a mesh that takes longer than all of them together hangs."""


@reported
def up(
    pipes: Annotated[
        Path | None,
        typer.Option("--pipes", metavar="DIR", help="Publish the pipes of this folder (see `hifi check`)."),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            max=3,
            help="Kafka brokers to start: 1 keeps one copy, 3 keep three.",
            show_default="1",
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="SERVICE=N", help="Instances of a service; may be repeated."),
    ] = None,
    autoscale: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscale",
            metavar="SERVICE=MIN-MAX",
            help="Let a service's instances follow CPU and backlog between bounds; may be repeated.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=256,
            help="Of each topic, fixed when a stream is made.",
            show_default="4",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where ingest takes events.")] = 8080,
    console_port: Annotated[
        int, typer.Option("--console-port", min=1, max=65535, help="Where observe serves its console.")
    ] = 8090,
    trigger: Annotated[
        Trigger,
        typer.Option(
            "--trigger", help="micro-batch allows everything; real-time is faster and allows no UDF."
        ),
    ] = "micro-batch",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Run the whole mesh on this machine until Ctrl-C: Kafka and every service, with a console that shows it.

    State lives in --data and survives: what was accepted before a stop, a crash or a kill is delivered after the
    next start. One Ctrl-C lets every service finish what it has, a second one ends all at once.

      hifi up --pipes examples/hello
      hifi up --pipes pipes/ --brokers 3 --scale normalize=2 --scale egest=2
      hifi up --pipes pipes/ --scale observe=0
      hifi up --pipes pipes/ --autoscale normalize=1-3 --autoscale egest=1-4
      hifi up --pipes pipes/ --kafka broker1:9092,broker2:9092
    """
    plan = Plan(
        data=data.resolve(),
        stream=stream or "hifi",
        kafka=kafka,
        brokers=brokers,
        partitions=partitions,
        port=port,
        console_port=console_port,
        trigger=trigger,
        scale={"observe": 1} | read_scale(scale or []),
        python_path=_python_path(pipes, data.resolve()),
    )
    if kafka and brokers:
        raise Misconfigured(
            "--brokers starts brokers and --kafka uses a cluster that runs already: give one of them"
        )
    policies = read_autoscale(autoscale or [])
    found = checked(pipes, trigger, quick=False, seen=plan.data / "checked") if pipes else []
    mesh = Mesh(plan)
    mesh.prepare()
    log_to(plan.data / "logs" / "mesh.log")
    asyncio.run(_run(mesh, found, policies))


async def _run(mesh: Mesh, pipes: list[Pipe], policies: Mapping[str, Policy]) -> None:
    interrupts = Interrupts()
    view = View(
        mesh,
        console,
        footer="Ctrl-C stops the mesh; what was accepted is kept and delivered after the next start",
    )
    with interrupts.caught():
        async with view.shown():
            try:
                await interrupts.unless(mesh.start(pipes))
                await interrupts.unless(mesh.wait_ready())
                _announce(mesh, pipes)
                async with _autoscaled(mesh, policies):
                    await interrupts.wait()
            except Interrupted:
                pass
            finally:
                await _stop(mesh, interrupts)
    console.print("the mesh is down", highlight=False)


@contextlib.asynccontextmanager
async def _autoscaled(mesh: Mesh, policies: Mapping[str, Policy]) -> AsyncIterator[None]:
    scaler = Autoscaler(mesh, policies, lambda: due_backlog(mesh.bootstrap, mesh.topics))
    task = asyncio.create_task(scaler.run(), name="autoscale") if policies else None
    try:
        yield
    finally:
        scaler.stop()
        if task is not None:
            await task


async def _stop(mesh: Mesh, interrupts: Interrupts) -> None:
    try:
        await interrupts.unless(mesh.stop(), stage=2)
    except Interrupted:
        await mesh.kill()
    except BaseException:
        await mesh.kill()
        raise


def _announce(mesh: Mesh, pipes: list[Pipe]) -> None:
    url = mesh.plan.url
    console.print(f"[bold green]ready[/]  events go to [bold]{url}[/]", highlight=False)
    if mesh.plan.console:
        console.print(f"what becomes of them is shown at [bold]{mesh.plan.console}[/]", highlight=False)
    if pipes:
        console.print(f"try it:  {example(url, pipes[0])}", highlight=False, markup=False, soft_wrap=True)
    elif not pipes:
        console.print(
            "no pipes were given; `hifi apply DIR` publishes some while the mesh runs", highlight=False
        )
    console.print(_durability(mesh), highlight=False, style="dim")


def _durability(mesh: Mesh) -> str:
    if mesh.cluster is None:
        return f"Kafka is not this mesh's own: how safe events are is what {mesh.bootstrap} is set up for."
    if mesh.cluster.brokers == 1:
        return (
            "One broker keeps one copy of each event: it survives the death of any process, also by kill -9, "
            f"not that of the disk with {mesh.plan.data} (nor, for the last moments, a power cut)."
        )
    return (
        f"{mesh.cluster.brokers} brokers keep as many copies and go on when one dies; "
        f"all copies are on the disk with {mesh.plan.data}."
    )


def example(url: str, pipe: Pipe) -> str:
    """A command that sends one event to a pipe."""
    key = "$KEY"
    if (first := pipe.source.keys[0]).env:
        key = f"${first.env}"
    elif first.file:
        key = f"$(cat {first.file})"
    head = f"curl -i -H \"Authorization: Bearer {key}\" -H 'Content-Type: application/json'"
    if Format.JSON in pipe.source.formats:
        return f'{head} -d \'{{"hello": "world"}}\' {url}/v1/pipes/{pipe.pipe}/events'
    attributes = " ".join(
        f"-H 'ce-{name}: {value}'"
        for name, value in {"specversion": "1.0", "id": "1", "source": "/me", "type": "greeting"}.items()
    )
    return f'{head} {attributes} -d \'{{"hello": "world"}}\' {url}/v1/events'


def _python_path(pipes: Path | None, data: Path) -> list[Path]:
    """Where functions are looked for: this folder of pipes, and those that pipes in force came from before."""
    before = running.read(data)
    known = [pipes.resolve()] if pipes else []
    return known + [one for one in (before.python_path if before else []) if one not in known]


@reported
def down(
    data: Data = DEFAULT_DATA,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="End it at once (kill -9); nothing that was accepted is lost.")
    ] = False,
) -> None:
    """Stop the mesh that runs on --data, from any terminal, and wait until it is down.

    hifi down
    hifi down --data /srv/hifi
    """
    if not running.is_locked(data):
        console.print(f"no mesh runs on {data}", highlight=False)
        return
    told = 0
    end = time.monotonic() + DOWN_S
    with console.status("waiting until every service has finished what it has"):
        while running.is_locked(data):
            mesh = running.find(data)
            if (
                mesh is not None and mesh.pid != told
            ):  # one that has just begun to start says later which it is
                told = mesh.pid
                _end(mesh, signal.SIGKILL if force else signal.SIGTERM)
            if time.monotonic() > end:
                raise HifiError(
                    f"the mesh on {data} (process {told or 'unknown'}) did not stop within {DOWN_S:.0f} s; "
                    "--force ends it at once"
                )
            time.sleep(0.1)
    console.print("the mesh is down", highlight=False)


def _end(mesh: running.RunningMesh, number: signal.Signals) -> None:
    try:
        os.kill(mesh.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Misconfigured(f"this mesh belongs to another user: process {mesh.pid}") from None
