"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Final

import typer
from platformdirs import user_state_path

from hifi_infra.mesh.plan import Trigger

DEFAULT_DATA: Final = user_state_path("hifi", appauthor=False)

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="HIFI_DATA",
        file_okay=False,
        metavar="DIR",
        show_default="the user's state directory",
        help="Data folder of the mesh; identifies a mesh on this machine.",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        envvar="HIFI_KAFKA",
        metavar="HOST:PORT,…",
        help="Kafka cluster to use instead of that of the mesh in --data.",
    ),
]
Stream = Annotated[
    str | None,
    typer.Option(
        "--stream",
        envvar="HIFI_STREAM",
        metavar="NAME",
        help="Name of the stream. Default: that of the mesh in --data, otherwise hifi.",
    ),
]
ControlPlane = Annotated[
    str,
    typer.Option(
        "--control",
        metavar="NAME",
        help="Name of the stream's control plane; that of `hifi up --control` is STREAM-control.",
        show_default="none",
    ),
]
ManageUrl = Annotated[
    str | None,
    typer.Option(
        "--manage",
        envvar="HIFI_MANAGE_URL",
        metavar="URL",
        help="Use the management API at this address instead of Kafka.",
    ),
]
ManageTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--manage-token-file",
        envvar="HIFI_MANAGE_TOKEN_FILE",
        metavar="FILE",
        help="File with the token of a principal, for --manage.",
    ),
]
IngestUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HIFI_URL",
        metavar="URL",
        help="Address of ingest. Default: the mesh in --data.",
    ),
]
TriggerOf = Annotated[
    Trigger,
    typer.Option(
        "--trigger",
        help="Spark trigger of enrich. auto: real-time, and micro-batch while a pipe has a UDF.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns.")]
Secure = Annotated[
    bool | None,
    typer.Option(
        "--secure/--no-secure",
        help="Start Kafka with TLS, passwords and ACLs; certificates and passwords are made in --data.",
        show_default="as the cluster in --data",
    ),
]
Scale = Annotated[
    list[str] | None,
    typer.Option("--scale", metavar="SERVICE=N", help="Number of instances of a service. Can be repeated."),
]
