"""hifi deploy: have the control plane replace the instances of a service by another release."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hifi.control.releases.desired_release import DEPLOYABLE, INSTALLED
from hifi.control.request import RequestKind
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream

app = typer.Typer(help="Replace the instances of a service by another release.")
ServiceName = Annotated[str, typer.Argument(metavar="SERVICE", help=f"One of {', '.join(DEPLOYABLE)}.")]


@app.command()
@report_errors
async def start(
    service: ServiceName,
    release: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE",
            help=f"A virtual environment, a folder with packages of hifi, or `{INSTALLED}`: what the mesh runs on. "
            "With --kafka: as the executor of that mesh names it, for containers the tag of an image.",
        ),
    ],
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Instances to replace at a time once the canary is judged.")
    ] = 1,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Deploy a release: one canary instance first, then the others in batches.

    The canary is judged beside the instances of the release before. A release
    that is worse is rolled back, and its reason is shown by `hifi deploy status`.

    Examples:
      hifi deploy start normalize releases/2026-11-23
      hifi deploy start egest releases/next --batch 2
      hifi deploy start egest installed
    """
    if service not in DEPLOYABLE:
        raise Misconfigured(
            f"{service} cannot be deployed with a canary: name one of {', '.join(DEPLOYABLE)}. Change another "
            "service, such as enrich, in one of two colours, with `hifi colour wake COLOUR --release FOLDER`, or "
            "restart the mesh with the new release"
        )
    target = kafka_target(data, kafka, stream)
    is_folder = target.running is not None and release != INSTALLED
    release_name = str(Path(release).resolve()) if is_folder else release
    await target.require_control().deploy(service, release_name, batch)
    console.print(
        f"The deployer replaces the release of {service}. `hifi deploy status` shows how far it is.",
        highlight=False,
    )


@app.command()
@report_errors
async def status(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the newest release of each service, how far its deployment is, and why.

    Examples:
      hifi deploy status
    """
    deployments = await kafka_target(data, kafka, stream).require_control().deployments()
    if as_json:
        print_json([deployment.json() for deployment in deployments.values()])
        return
    if not deployments:
        console.print("No release was deployed. Deploy one with `hifi deploy start SERVICE RELEASE`.")
        return
    rows = table("service", "state", "canary", "release", "before", "why")
    for deployment in deployments.values():
        state = f"{deployment.state.value}, paused" if deployment.paused_by else deployment.state.value
        canary = deployment.canary or "-"
        cells = deployment.service, state, canary, deployment.release, deployment.before, deployment.reason
        rows.add_row(*map(escape, cells))
    print_table(rows, console)


@app.command()
@report_errors
async def abort(
    service: ServiceName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Roll a deployment back: all instances get the release before.

    Examples:
      hifi deploy abort normalize
    """
    await _ask_deployer(data, kafka, stream, service, RequestKind.ABORT)


@app.command()
@report_errors
async def pause(
    service: ServiceName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Replace no further instance. A release that is worse is still rolled back.

    Examples:
      hifi deploy pause normalize
    """
    await _ask_deployer(data, kafka, stream, service, RequestKind.PAUSE)


@app.command()
@report_errors
async def resume(
    service: ServiceName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Go on with a deployment after a pause.

    Examples:
      hifi deploy resume normalize
    """
    await _ask_deployer(data, kafka, stream, service, RequestKind.RESUME)


@app.command()
@report_errors
async def force(
    service: ServiceName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Take the next action of a deployment although it would wait. Your name is put on record.

    The next action is the canary, one batch, or the end of the deployment. A
    release that is worse is still rolled back.

    Examples:
      hifi deploy force normalize
    """
    await _ask_deployer(data, kafka, stream, service, RequestKind.FORCE)


async def _ask_deployer(
    data: Path, kafka: str | None, stream: str | None, service: str, kind: RequestKind
) -> None:
    deployment = await kafka_target(data, kafka, stream).require_control().ask_deployer(service, kind)
    console.print(
        f"Asked the deployer to {kind.value} the deployment of {deployment.release}.", highlight=False
    )
