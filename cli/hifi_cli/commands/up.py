"""hifi up: run a complete mesh on this machine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hifi.pipe.loader import load_views
from hifi.pipe.model import Pipe
from hifi.pipe.reader import reader
from hifi.pipe.sources.collected import Format
from hifi.pipe.step_inputs import STEP
from hifi.runtime.errors import Misconfigured
from hifi_cli.commands.check import load_checked_pipes
from hifi_cli.commands.console import print_console_link
from hifi_cli.commands.up_colours import refuse_with_colours, up_colours
from hifi_cli.display.console import console
from hifi_cli.display.mesh_view import MeshView
from hifi_cli.error_reporting import report_errors
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.mesh_state.colour_command import MeshOptions
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token
from hifi_cli.options import DEFAULT_DATA, Data, Kafka, Scale, Secure, Stream, TriggerOf
from hifi_infra.autoscaler.autoscaler import Autoscaler, read_autoscale
from hifi_infra.autoscaler.policy import Policy
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.java.jdk import find_java
from hifi_infra.kafka.backlog import due_backlog
from hifi_infra.mesh import running
from hifi_infra.mesh.health_probe import LOOPBACK
from hifi_infra.mesh.lane_occupancy import lane_occupancy
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, read_scale


@report_errors
def up(
    pipes: Annotated[
        Path | None,
        typer.Option(
            "--pipes",
            metavar="DIR",
            help="Check and publish the pipes of this folder; with --control only new ones.",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            max=3,
            help="Kafka brokers to start. 1 stores one copy of each event, 3 store three copies.",
            show_default="1",
        ),
    ] = None,
    kafka_version: Annotated[
        str,
        typer.Option(
            "--kafka-version",
            metavar="VERSION",
            help="Version of the brokers to start. Default: that of the last start on --data, otherwise the one that "
            "hifi is tested with.",
        ),
    ] = "",
    scale: Scale = None,
    autoscale: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscale",
            metavar="SERVICE=MIN-MAX",
            help="Scale a service between two bounds by its CPU use and backlog. Can be repeated.",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Run the control plane and the management API, too: observe gives verdicts, and --autoscale keeps "
            "to them.",
        ),
    ] = False,
    colours: Annotated[
        bool,
        typer.Option(
            "--colours",
            help="Run two meshes, blue and green, behind one front (HAProxy): `hifi colour` divides the requests.",
        ),
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=256,
            help="Partitions of each event topic. Fixed when the stream is created.",
            show_default="4",
        ),
    ] = None,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Run Kafka Connect with Debezium for pipes with the source `debezium`. Goes with neither --kafka nor "
            "--secure.",
        ),
    ] = False,
    connect_port: Annotated[
        int, typer.Option("--connect-port", min=1, max=65535, help="Port of Kafka Connect, with --connect.")
    ] = 8083,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of ingest.")] = 8080,
    second_port: Annotated[
        int | None,
        typer.Option(
            "--second-port",
            min=1,
            max=65535,
            help="Port of a second front, with --colours, for senders that try another address when one refuses.",
        ),
    ] = None,
    split_above: Annotated[
        float | None,
        typer.Option(
            "--split-above",
            min=1,
            metavar="EV_PER_S",
            help="With --colours, give each colour half of the requests while more events than this come in a second.",
        ),
    ] = None,
    console_port: Annotated[
        int, typer.Option("--console-port", min=1, max=65535, help="Port of observe, its console and API.")
    ] = 8090,
    manage_port: Annotated[
        int,
        typer.Option("--manage-port", min=1, max=65535, help="Port of the management API, with --control."),
    ] = 8091,
    view_port: Annotated[
        int,
        typer.Option("--view-port", min=1, max=65535, help="Port of views, if the pipes' folder has any."),
    ] = 8092,
    trigger: TriggerOf = "auto",
    secure: Secure = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Run a complete mesh on this machine until Ctrl-C: Kafka, every service and the web console.

    The state is kept in --data: events accepted before a stop or a crash are
    delivered after the next start. The first Ctrl-C shuts down gracefully; the
    second one ends all processes immediately.

    Examples:
      hifi up --pipes examples/hello
      hifi up --pipes pipes/ --brokers 3 --scale normalize=2 --scale egest=2
      hifi up --pipes pipes/ --scale observe=0
      hifi up --pipes pipes/ --autoscale normalize=1-3 --autoscale egest=1-4
      hifi up --pipes pipes/ --control --autoscale egest=1-4
      hifi up --pipes pipes/ --connect
      hifi up --pipes pipes/ --colours
      hifi up --pipes pipes/ --kafka broker1:9092,broker2:9092
    """
    running.read(data.resolve())  # refuses the folder of a newer release
    if colours:
        conflicting_options = {
            "--kafka": kafka,
            "--brokers": brokers,
            "--secure": secure,
            "--control": control,
            "--autoscale": autoscale,
            "--connect": connect,
            "--kafka-version": kafka_version,
        }
        refuse_with_colours(conflicting_options)
        up_colours(
            data.resolve(),
            stream or "hifi",
            (port, *([second_port] if second_port else [])),
            pipes,
            MeshOptions(partitions, trigger, tuple(scale or ())),
            split_above or 0,
        )
        return
    if second_port or split_above:
        raise Misconfigured("--second-port and --split-above go with --colours: without it there is no front")
    policies = read_autoscale(autoscale or [])
    plan = Plan(
        data=data.resolve(),
        stream=stream or "hifi",
        kafka=kafka,
        brokers=brokers,
        secure=secure,
        kafka_version=kafka_version,
        partitions=partitions,
        port=port,
        console_port=console_port,
        manage_port=manage_port if control else 0,
        trigger=trigger,
        scale={"observe": 1} | read_scale(scale or []),
        control=control,
        bounds={name: (policy.min_instances, policy.max_instances) for name, policy in policies.items()}
        if control
        else {},
        python_path=_python_path(pipes, data.resolve()),
    )
    if kafka and (brokers or kafka_version):
        raise Misconfigured(
            "--brokers and --kafka-version start a Kafka cluster and --kafka uses an existing one: give one of them"
        )
    if connect and (kafka or secure):
        raise Misconfigured(
            "--connect goes with neither --kafka nor --secure: run a worker of Kafka Connect yourself, with "
            "exactly.once.source.support=enabled, and name its URL in the pipe (docs/sources.md)"
        )
    if kafka and secure:
        raise Misconfigured(
            "--secure starts a secured Kafka cluster and --kafka uses an existing one: for that one set "
            "HIFI_KAFKA_SECURITY_PROTOCOL and the variables beside it"
        )
    if plan.needs_java:
        find_java()  # before anything is written
    checked = (
        load_checked_pipes(pipes, trigger, quick=False, passed_folder=plan.data / "checked") if pipes else []
    )
    plan = replace(plan, scale=_needed_by(checked) | dict(plan.scale))
    views = next((folder for folder in plan.python_path if load_views(folder)[0]), None)
    if views is not None:
        plan = replace(plan, scale={"view": 1} | dict(plan.scale), views=views, view_port=view_port)
    mesh = Mesh(plan)
    mesh.prepare()
    log_to(plan.data / "logs" / "mesh.log")
    asyncio.run(_run(mesh, checked, {} if control else policies, connect_port if connect else None))


def _needed_by(pipes: Sequence[Pipe]) -> dict[str, int]:
    """Service to the number of instances, of those that run only where a pipe needs them."""
    needs = {
        "collect": any(pipe.source.kind not in ("http", STEP) for pipe in pipes),
        "state": any(pipe.source.kind == STEP for pipe in pipes),
        "lake": any(reader(destination) == "lake" for pipe in pipes for destination in pipe.destinations),
    }
    return {service: 1 for service, is_needed in needs.items() if is_needed}


async def _run(
    mesh: Mesh, pipes: list[Pipe], policies: Mapping[str, Policy], connect_port: int | None
) -> None:
    interrupts = Interrupts()
    view = MeshView(
        mesh,
        console,
        footer="Ctrl-C stops the mesh. Accepted events are kept and delivered after the next start.",
    )
    worker: ConnectWorker | None = None
    supervision: asyncio.Task[None] | None = None
    with interrupts.handle_signals():
        async with view.shown():
            try:
                await interrupts.run(mesh.start(pipes))
                if connect_port is not None:
                    worker = _connect_worker(mesh, connect_port)
                    await interrupts.run(worker.start())
                    supervision = asyncio.create_task(worker.supervise())
                await interrupts.run(mesh.wait_ready())
                _announce(mesh, pipes)
                async with _autoscaled(mesh, policies):
                    await interrupts.wait_for_signal()
            except Interrupted:
                pass
            finally:
                if supervision is not None:
                    supervision.cancel()
                if worker is not None:
                    await worker.stop()
                await _stop(mesh, interrupts)
    console.print("The mesh has stopped.", highlight=False)


def _connect_worker(mesh: Mesh, port: int) -> ConnectWorker:
    assert mesh.cluster is not None
    return ConnectWorker(mesh.plan.data / "connect", mesh.bootstrap, port, brokers=mesh.cluster.brokers)


@contextlib.asynccontextmanager
async def _autoscaled(mesh: Mesh, policies: Mapping[str, Policy]) -> AsyncIterator[None]:
    scaler = Autoscaler(
        mesh,
        policies,
        lambda: due_backlog(mesh.bootstrap, mesh.topics),
        lambda: lane_occupancy((LOOPBACK, instance.spec.port) for instance in mesh.instances["egest"]),
    )
    task = asyncio.create_task(scaler.run(), name="autoscale") if policies else None
    try:
        yield
    finally:
        scaler.stop()
        if task is not None:
            await task


async def _stop(mesh: Mesh, interrupts: Interrupts) -> None:
    try:
        await interrupts.run(mesh.stop(), until_signal=2)
    except Interrupted:
        await mesh.kill()
    except BaseException:
        await mesh.kill()
        raise


def _announce(mesh: Mesh, pipes: list[Pipe]) -> None:
    url = mesh.plan.url
    console.print(f"[bold green]Ready.[/] Send events to [bold]{url}[/]", highlight=False, soft_wrap=True)
    token = read_token(mesh.plan.token)
    if mesh.plan.console:
        print_console_link("Open the console at", ObserveApi(mesh.plan.console, token))
    if mesh.plan.instances("view"):
        views = f"http://127.0.0.1:{mesh.plan.view_port}"
        console.print(
            f"Read views at {views}, in programs at {views}/v1/views", highlight=False, soft_wrap=True
        )
    if mesh.plan.manage:
        print_console_link("Manage pipes at", ObserveApi(mesh.plan.manage, token))
        console.print(f"Programs send the token in {mesh.plan.token}.", highlight=False, soft_wrap=True)
    keyed_pipes = [pipe for pipe in pipes if pipe.source.keys]
    if keyed_pipes:
        console.print("Example:", highlight=False)
        console.print(
            f"  {example_request(url, keyed_pipes[0])}", highlight=False, markup=False, soft_wrap=True
        )
    elif not pipes:
        console.print("No pipes were given. Publish some with `hifi apply DIR`.", highlight=False)
    console.print(_durability(mesh), highlight=False, style="dim")


def _durability(mesh: Mesh) -> str:
    if mesh.cluster is None:
        return f"Durability: as configured in the external Kafka cluster {mesh.bootstrap}."
    if mesh.cluster.brokers == 1:
        return (
            "Durability: one broker stores one copy of each event. Events survive the crash of any process "
            f"(also kill -9), but not the loss of the disk with {mesh.plan.data}, and the newest ones not a power cut."
        )
    return (
        f"Durability: {mesh.cluster.brokers} brokers store {mesh.cluster.brokers} copies of each event and tolerate "
        f"the crash of one broker; all copies are on the disk with {mesh.plan.data}."
    )


def example_request(url: str, pipe: Pipe) -> str:
    """Return a curl command that sends one event to a pipe."""
    key = "$KEY"
    if (first_key := pipe.source.keys[0]).env:
        key = f"${first_key.env}"
    elif first_key.file:
        key = f"$(cat {first_key.file})"
    head = f"curl -i -H \"Authorization: Bearer {key}\" -H 'Content-Type: application/json'"
    if Format.JSON in pipe.source.formats:
        return f'{head} -d \'{{"hello": "world"}}\' {url}/v1/pipes/{pipe.pipe}/events'
    attributes = " ".join(
        f"-H 'ce-{name}: {value}'"
        for name, value in {"specversion": "1.0", "id": "1", "source": "/me", "type": "greeting"}.items()
    )
    return f'{head} {attributes} -d \'{{"hello": "world"}}\' {url}/v1/events'


def _python_path(pipes: Path | None, data: Path) -> list[Path]:
    """Return the folders to import functions from: this folder of pipes, and those of the pipes published earlier."""
    mesh_before = running.read(data)
    folders = [pipes.resolve()] if pipes else []
    return folders + [
        folder for folder in (mesh_before.python_path if mesh_before else []) if folder not in folders
    ]
