"""The kind of a destination, which an installed package provides, and its settings."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from hifi.delivery.kind import DestinationKind
from hifi.delivery.sender import SenderKind
from hifi.pipe.installed_kinds import DESTINATIONS, load_kind
from hifi.pipe.model import ConnectorDestination
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
