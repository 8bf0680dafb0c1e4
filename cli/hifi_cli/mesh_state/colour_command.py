"""The command that runs the mesh of one colour."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hifi.delivery.colours import ColourSetup
from hifi.pipe.loader import load_views
from hifi_infra.colours.colour_mesh import ColourAddress, MeshCommand
from hifi_infra.mesh.plan import Trigger

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


def mesh_command(stream: str, pipes: Path | None, options: MeshOptions) -> MeshCommand:
    """The command that runs the mesh of a colour, given its address and its setup."""

    def command(address: ColourAddress, setup: ColourSetup) -> list[str]:
        """`hifi up` on the colour's folder and ports."""
        partitions = setup.partitions or options.partitions
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
        if pipes and load_views(pipes)[0]:  # a release without views has no such option
            argv += ["--view-port", str(address.view_port)]
        argv += ["--partitions", str(partitions)] if partitions else []
        argv += ["--kafka-version", setup.kafka_version] if setup.kafka_version else []
        return argv + [argument for count in options.scale for argument in ("--scale", count)]

    return command
