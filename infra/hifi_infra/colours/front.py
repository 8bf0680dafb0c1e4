"""Interface of the fronts that divide requests between the colours."""

from collections.abc import Mapping
from typing import Protocol


class Front(Protocol):
    """Accepts requests at one address and passes each on to one colour.

    With HAProxy a request with a key stays on one colour while the shares do not change, and a change of the shares
    moves only as many keys as it must; a request is sent to the other colour only if its own refuses the connection. A
    Gateway (`hifi_infra.kubernetes.route_front`) does neither.
    """

    @property
    def url(self) -> str:
        """URL for requests."""

    @property
    def stats(self) -> str:
        """Address of its statistics; empty: observe cannot count what it refuses."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""

    async def start(self, shares: Mapping[str, int]) -> None:
        """Start it with these shares, in 1/10,000 by colour.

        Raises:
            HifiError: it does not start.
        """

    async def divide(self, shares: Mapping[str, int]) -> None:
        """Change the shares without ending a request.

        Raises:
            Retryable: it does not answer.
        """

    async def renew_certificate(self) -> None:
        """Use its certificate as the files have it now, for new connections.

        Raises:
            Retryable: it does not answer.
            Misconfigured: it refuses the certificate.
        """

    async def shares(self) -> dict[str, int]:
        """The shares in force.

        Raises:
            Retryable: it does not answer.
        """

    async def stop(self) -> None:
        """Finish the requests that it has, and end."""

    async def kill(self) -> None:
        """End at once."""
