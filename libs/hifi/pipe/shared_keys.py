"""Finds the write keys that two pipes share. None may be shared: at /v1/events the key determines the pipe."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.secret import KeyReference, WriteKey
from hifi.runtime.errors import Misconfigured


class KeyOwners:
    """The pipes of write keys: by the reference of a key, and by its digest if this process may and can read it.

    Args:
        variables: environment of the services; default: of this process.
    """

    def __init__(self, variables: Mapping[str, str] = os.environ) -> None:
        self._variables: Final = variables
        self._owners: Final[dict[KeyReference, str]] = {}

    def add(self, pipe: Pipe) -> None:
        """Note the keys of a pipe. One that another pipe has stays that pipe's."""
        for key in pipe.source.keys:
            for reference in self._references(pipe, key):
                self._owners.setdefault(reference, pipe.pipe)

    def others(self, pipe: Pipe) -> Iterator[tuple[int, str]]:
        """Index of each key of a pipe that another noted pipe has, too, and that pipe's name."""
        for index, key in enumerate(pipe.source.keys):
            owners = (self._owners.get(reference) for reference in self._references(pipe, key))
            other_owner = next((owner for owner in owners if owner not in (None, pipe.pipe)), None)
            if other_owner is not None:
                yield index, other_owner

    def _references(self, pipe: Pipe, key: WriteKey) -> Iterator[KeyReference]:
        """The reference of a key; and its digest, if the key is granted to its pipe and can be read."""
        yield key.reference()
        if key.refusal(pipe_limits()) or key.not_granted(pipe.pipe, pipe_limits()):
            return
        try:
            digest = key.digest(self._variables)
        except Misconfigured:
            return
        yield KeyReference(sha256=digest)


def require_keys_of_their_own(
    pipes: Sequence[Pipe], published_pipes: Iterable[Pipe], variables: Mapping[str, str] = os.environ
) -> None:
    """Refuse to publish pipes that share a write key with each other or with another pipe.

    Args:
        pipes: to publish.
        published_pipes: in force, of which those with the names of `pipes` are left out.
        variables: environment of the services; default: of this process.

    Raises:
        Misconfigured: the message lists all such keys by their place.
    """
    owners, pipe_names = KeyOwners(variables), {pipe.pipe for pipe in pipes}
    for published_pipe in published_pipes:
        if published_pipe.pipe not in pipe_names:
            owners.add(published_pipe)
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
    """The message to the author of a write key that a pipe has, too."""
    return f"the pipe {pipe!r} has the same write key; give each its own"
