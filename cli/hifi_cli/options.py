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
        show_default="the state folder of this user",
        help="Folder of the mesh's state; it names the mesh on this machine.",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        envvar="HIFI_KAFKA",
        metavar="HOST:PORT,…",
        help="Use this Kafka cluster instead of the mesh in --data.",
    ),
]
Stream = Annotated[
    str | None,
    typer.Option(
        "--stream",
        envvar="HIFI_STREAM",
        help="Name of the stream; default: that of the mesh in --data, else hifi.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="HIFI_URL", help="Where ingest takes events; default: that of the mesh in --data."
    ),
]
TriggerOf = Annotated[
    Trigger,
    typer.Option("--trigger", help="Of enrich (Spark): micro-batch, or real-time for milliseconds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
