"""Refuse a version of a pipe whose destinations cannot follow those of the version in force."""

from collections.abc import Mapping

from hifi.delivery.installed_kinds import InvalidDestination, installed_kind, read_settings
from hifi.delivery.kind import Declared
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.reader import reader
from hifi.runtime.errors import Misconfigured


def require_possible_changes(pipe: Pipe, pipes_in_force: Mapping[str, Pipe]) -> None:
    """Check the destinations of a pipe against those of the version in force.

    Args:
        pipe: to publish.
        pipes_in_force: name to the pipe that is in force.

    Raises:
        Misconfigured: one cannot follow; the message names destination and remedy.
    """
    current_pipe = pipes_in_force.get(pipe.pipe)
    if current_pipe is None:
        return
    for destination in pipe.destinations:
        current_destination = current_pipe.destination(destination.name)
        if current_destination is not None and reader(current_destination) != reader(destination):
            raise Misconfigured(
                f"{pipe.pipe}: destination {destination.name}: another service would deliver its events, which begins"
                " elsewhere: declare the new kind under another name, and delete this one once it has no backlog"
            )
        if not isinstance(destination, ConnectorDestination) or not isinstance(
            current_destination, ConnectorDestination
        ):
            continue
        if (
            current_destination.kind != destination.kind
            or installed_kind(destination.kind).check_change is None
        ):
            continue
        kind, settings = read_settings(destination)
        assert kind.check_change is not None
        try:
            current_settings = read_settings(current_destination)[1]
        except InvalidDestination:
            continue  # nothing is delivered by it, and what corrects it must not be refused
        try:
            kind.check_change(
                Declared(current_destination, current_pipe, current_settings),
                Declared(destination, pipe, settings),
            )
        except Misconfigured as error:
            raise Misconfigured(f"{pipe.pipe}: destination {destination.name}: {error}") from error
