"""The kind of a destination, which an installed package provides, and its settings."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from hifi.delivery.kind import DestinationKind
from hifi.delivery.sender import SenderKind
from hifi.pipe.installed_kinds import DESTINATIONS, load_kind
from hifi.pipe.model import ConnectorDestination, Destination, Pipe
from hifi.pipe.strict_model import StrictModel, validation_problems
from hifi.runtime.errors import Misconfigured


class InvalidDestination(Misconfigured):
    """The kind or the settings of a destination are wrong.

    Attributes:
        problems: path within the destination's YAML, such as `("settings", "table")`, and message of each.
    """

    def __init__(self, problems: Sequence[tuple[Sequence[str | int], str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, path))}: {message}" for path, message in problems))
        self.problems = problems


@lru_cache
def installed_kind(name: str) -> DestinationKind[Any]:
    """The kind of that name.

    Raises:
        Misconfigured: no package provides it, several do, or it cannot be loaded.
    """
    kind: DestinationKind[Any] = load_kind(DESTINATIONS, name, DestinationKind)
    return kind


@lru_cache
def installed_sender_kind(name: str) -> SenderKind:
    """As `installed_kind`, of a kind that sends by itself."""
    return load_kind(DESTINATIONS, name, SenderKind)


def read_settings(destination: ConnectorDestination) -> tuple[DestinationKind[Any], StrictModel]:
    """The kind of a destination, and its settings.

    Raises:
        InvalidDestination: the kind is not installed, or the settings are not valid.
    """
    try:
        kind = installed_kind(destination.kind)
        return kind, kind.settings.model_validate(destination.settings)
    except Misconfigured as error:
        raise InvalidDestination([(("kind",), str(error))]) from error
    except ValidationError as error:
        problems = [(("settings", *path), message) for path, message in validation_problems(error)]
        raise InvalidDestination(problems) from error


def completed(pipe: Pipe) -> Pipe:
    """A pipe as it is published: settings of destinations have what follows from the rest of the pipe.

    Raises:
        Misconfigured: settings of a destination are not valid, or do not fit the rest of the pipe.
    """
    destinations = [_completed_destination(destination, pipe) for destination in pipe.destinations]
    return (
        pipe if destinations == pipe.destinations else pipe.model_copy(update={"destinations": destinations})
    )


def _completed_destination(destination: Destination, pipe: Pipe) -> Destination:
    if not isinstance(destination, ConnectorDestination):
        return destination
    try:
        kind, settings = read_settings(destination)
        if kind.check is not None:
            kind.check(destination, pipe, settings)
        if kind.complete is None:
            return destination
        return destination.model_copy(update={"settings": dict(kind.complete(destination, pipe, settings))})
    except Misconfigured as error:
        raise Misconfigured(f"{pipe.pipe}/{destination.name}: {error}") from error
