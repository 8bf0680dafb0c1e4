"""The kinds of destinations that are installed beside this process, by their entry points."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import ValidationError

from hifi.delivery.kind import DestinationKind
from hifi.pipe.model import ConnectorDestination
from hifi.pipe.strict_model import StrictModel, validation_problems
from hifi.runtime.errors import Misconfigured

GROUP: Final = "hifi.destinations"
"""Entry-point group: the name is the kind, the value is `module:object` of a `DestinationKind`."""


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
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = sorted({"http", *entry_points(group=GROUP).names})
        raise Misconfigured(
            f"the kind {name!r} is not installed; installed here: {', '.join(known)}. Install the package that "
            f"provides it (entry-point group {GROUP}) beside egest and beside the command hifi"
        )
    values = sorted({one.value for one in found})
    if len(values) > 1:
        raise Misconfigured(
            f"several packages provide the kind {name!r}: {', '.join(values)}; remove all but one"
        )
    try:
        kind = next(iter(found)).load()
    except Exception as error:  # whatever the package raises while it is imported
        raise Misconfigured(
            f"the kind {name!r} cannot be loaded from {values[0]}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(kind, DestinationKind):
        raise Misconfigured(f"{values[0]}, which provides the kind {name!r}, is not a DestinationKind")
    return kind


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
