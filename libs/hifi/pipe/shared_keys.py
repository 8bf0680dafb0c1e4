"""Finds the write keys that two pipes share. None may be shared: at /v1/events the key determines the pipe."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.secret import KeyPlace, WriteKey
from hifi.runtime.errors import Misconfigured


class KeyOwners:
    """The pipes of write keys: by where a key is named, and by its digest if this process may and can read it.

    Args:
        variables: environment of the services; default: of this process.
    """

    def __init__(self, variables: Mapping[str, str] = os.environ) -> None:
        self._variables: Final = variables
        self._owners: Final[dict[KeyPlace, str]] = {}

    def add(self, pipe: Pipe) -> None:
        """Note the keys of a pipe. One that another pipe has stays that pipe's."""
        for key in pipe.source.keys:
            for place in self._places(pipe, key):
                self._owners.setdefault(place, pipe.pipe)

    def others(self, pipe: Pipe) -> Iterator[tuple[int, str]]:
        """Index of each key of a pipe that another noted pipe has, too, and that pipe's name."""
        for index, key in enumerate(pipe.source.keys):
            owners = (self._owners.get(place) for place in self._places(pipe, key))
            other = next((owner for owner in owners if owner not in (None, pipe.pipe)), None)
            if other is not None:
                yield index, other

    def _places(self, pipe: Pipe, key: WriteKey) -> Iterator[KeyPlace]:
        """Where a key is named; and as if it were named by its digest, of a key that is granted to its pipe."""
        yield key.place()
        if key.refusal(pipe_limits()) or key.not_granted(pipe.pipe, pipe_limits()):
            return
        try:
            digest = key.digest(self._variables)
        except Misconfigured:
            return
        yield KeyPlace(sha256=digest)


def require_keys_of_their_own(
    pipes: Sequence[Pipe], others: Iterable[Pipe], variables: Mapping[str, str] = os.environ
) -> None:
    """Refuse to publish pipes that share a write key with each other or with another pipe.

    Args:
        pipes: to publish.
        others: in force, of which those with the names of `pipes` are left out.
        variables: environment of the services; default: of this process.

    Raises:
        Misconfigured: the message lists all such keys by their place.
    """
    owners, names = KeyOwners(variables), {pipe.pipe for pipe in pipes}
    for other in others:
        if other.pipe not in names:
            owners.add(other)
    lines = []
    for pipe in pipes:
        lines += [
            f"{pipe.pipe}: source.keys.{index}: {shared_with(name)}, or delete that pipe first"
            for index, name in owners.others(pipe)
        ]
        owners.add(pipe)
    if lines:
        raise Misconfigured("no pipe was published:\n  " + "\n  ".join(lines))


def shared_with(pipe: str) -> str:
    """What to tell whoever declares a write key that a pipe has, too."""
    return f"the pipe {pipe!r} has the same write key; give each its own"
