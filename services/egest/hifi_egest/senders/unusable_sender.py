"""The sender of a destination whose kind fails when it is opened."""

from hifi.delivery.sender import SendResult
from hifi.runtime.health import Health
from hifi_egest.delivery.delivery import OutboundRequest


class UnusableSender:
    """Sends nothing, until the destination is declared anew or egest restarts."""

    def __init__(self, pipe: str, destination: str, missing: str, health: Health) -> None:
        """Show the reason.

        Args:
            pipe: name.
            destination: name.
            missing: why no request can be sent.
            health: shows it.
        """
        self.ready = False
        self.missing = missing
        self._health = health
        self._subject = f"destination {pipe}/{destination}"
        health.warn(self._subject, missing)

    async def send(self, request: OutboundRequest) -> SendResult:  # noqa: ARG002 - the protocol has it
        """Send nothing."""
        return None

    def sweep(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Show the reason no longer."""
        self._health.warn(self._subject, None)
