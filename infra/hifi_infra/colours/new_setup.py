"""Another setup for a colour that is asleep: what it may be, and a new stream for another number of partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hifi.control.releases.desired_release import INSTALLED
from hifi.delivery.colours import ColourSetup
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.java.jars import kafka_versions
from hifi_infra.mesh import running
from hifi_infra.mesh.release import require_mesh_release

_PREFIX: Final = "HIFI_"
_OWN: Final = frozenset(
    {
        "HIFI_COLOUR",
        "HIFI_COLOURS",
        "HIFI_CONTROL",
        "HIFI_CONTROL_KAFKA",
        "HIFI_DATA",
        "HIFI_KAFKA",
        "HIFI_STREAM",
    }
)
"""Variables that `hifi up --colours` itself sets, or that would lead a colour to another mesh."""


@dataclass(frozen=True, slots=True)
class SetupChange:
    """Changes of a colour's setup for its next wake.

    Attributes:
        partitions: of each event topic; 0: as before.
        kafka_version: of its broker; empty: as before.
        release: folder of a release, or `installed`; empty: as before.
        settings: variables of its services; an empty value removes one.
    """

    partitions: int = 0
    kafka_version: str = ""
    release: str = ""
    settings: Mapping[str, str] | None = None

    def __bool__(self) -> bool:
        """Whether anything is to be different."""
        return bool(self.partitions or self.kafka_version or self.release or self.settings)

    def check(self) -> None:
        """Refuse what no colour can run on.

        Raises:
            Misconfigured: an unknown version of Kafka, no release, or a variable that may not be set.
        """
        if self.kafka_version and self.kafka_version not in kafka_versions():
            versions = ", ".join(kafka_versions())
            raise Misconfigured(f"there are no jars of Kafka {self.kafka_version}: name one of {versions}")
        if self.release:
            require_mesh_release(self.release)
        for name in self.settings or {}:
            if not name.startswith(_PREFIX) or name in _OWN:
                raise Misconfigured(
                    f"{name} cannot be set for one colour: name a variable of docs/settings.md that begins with "
                    f"{_PREFIX}, but none of {', '.join(sorted(_OWN))}"
                )

    def of(self, before: ColourSetup) -> ColourSetup:
        """The setup with this change."""
        release = self.release or before.release
        settings = dict(before.settings) | dict(self.settings or {})
        return replace(
            before,
            partitions=self.partitions or before.partitions,
            kafka_version=self.kafka_version or before.kafka_version,
            release="" if release == INSTALLED else release,
            settings={name: value for name, value in settings.items() if value},
        )


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """`["HIFI_ENRICH_DRIVER_MEMORY=2g"]` as variables.

    Raises:
        Misconfigured: a text has no `=`.
    """
    if invalid := [text for text in texts if "=" not in text]:
        raise Misconfigured(f"--set {invalid[0]}: expected NAME=VALUE, or NAME= to remove it")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def set_aside(folder: Path, partitions: int) -> Path | None:
    """Make room for a stream with another number of partitions, which needs topics of its own.

    The folder keeps everything under another name: dead letters, parked deliveries
    and minutes, which `hifi up --data` on it makes readable again.

    Args:
        folder: data folder of a colour.
        partitions: that it is to have.

    Returns:
        The old stream's folder; None: the stream in the folder has this number of partitions, or there is none.

    Raises:
        Retryable: the mesh in the folder has not ended yet.
    """
    mesh_before = running.read(folder)
    if mesh_before is None or mesh_before.partitions in {0, partitions}:
        return None
    if running.is_locked(folder):
        raise Retryable(
            f"the mesh of {folder.name} still ends, and a new stream needs its folder {folder}: wait until none of its "
            "processes runs, and try again"
        )
    name, number = f"{folder.name}-{mesh_before.partitions}-partitions", 1
    while (target := folder.with_name(name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    folder.rename(target)
    return target
