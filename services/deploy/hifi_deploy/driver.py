"""The interface through which the deployer reads and changes instances."""

from collections.abc import Sequence
from typing import Protocol

from hifi_deploy.instance_reading import InstanceReading


class Driver(Protocol):
    """Lists and changes the instances of services. Every change carries the fencing token of its action.

    A change may be asked for again after it was made: then it does nothing.
    """

    async def read(self, service: str) -> Sequence[InstanceReading]:
        """All instances of a service with their figures.

        Raises:
            Retryable: they cannot be read now.
        """

    async def set_release(self, name: str, release: str, reason: str, token: int) -> None:
        """Start an instance of a release, or drain the one of this name and start it with the release.

        Raises:
            ChangeRefused: the release cannot be run.
            Retryable: it is not known whether it was done.
        """

    async def remove(self, name: str, reason: str, token: int) -> None:
        """Drain and end an instance.

        Raises:
            Retryable: it is not known whether it was done.
        """

    async def set_default_release(self, service: str, release: str, token: int) -> None:
        """Have instances that are started from now on, by anybody, run a release.

        Raises:
            Retryable: it is not known whether it was done.
        """
