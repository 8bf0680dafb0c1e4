"""Find the kinds of sources and destinations that are installed beside this process, by their entry points."""

from importlib.metadata import entry_points
from typing import Final, TypeVar

from hifi.runtime.errors import Misconfigured

SOURCES: Final = "hifi.sources"
"""Entry-point group: the name is the kind, the value is `module:object` of a `SourceKind`."""
DESTINATIONS: Final = "hifi.destinations"
"""Entry-point group: the name is the kind, the value is `module:object` of a `DestinationKind` or `SenderKind`."""
_READERS: Final = {SOURCES: "collect", DESTINATIONS: "egest"}
"""Group to the service that needs its packages."""

KindT = TypeVar("KindT")


def load_kind(group: str, name: str, kind_class: type[KindT]) -> KindT:
    """The kind of that name.

    Args:
        group: of entry points.
        name: of the kind.
        kind_class: that the entry point's object must have.

    Raises:
        Misconfigured: no package provides it, several do, or it cannot be loaded.
    """
    providers = entry_points(group=group, name=name)
    if not providers:
        installed_names = sorted(
            {*({"http", "step"} if group == SOURCES else ()), *entry_points(group=group).names}
        )
        raise Misconfigured(
            f"the kind {name!r} is not installed; installed here: {', '.join(installed_names)}. Install the package "
            f"that provides it (entry-point group {group}) beside {_READERS[group]} and beside the command hifi"
        )
    values = sorted({provider.value for provider in providers})
    if len(values) > 1:
        raise Misconfigured(
            f"several packages provide the kind {name!r}: {', '.join(values)}; remove all but one"
        )
    try:
        kind = next(iter(providers)).load()
    except Exception as error:  # whatever the package raises while it is imported
        raise Misconfigured(
            f"the kind {name!r} cannot be loaded from {values[0]}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(kind, kind_class):
        raise Misconfigured(f"{values[0]}, which provides the kind {name!r}, is not a {kind_class.__name__}")
    return kind
