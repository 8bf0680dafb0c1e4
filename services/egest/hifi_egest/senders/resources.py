"""The resources of lanes that senders use."""

from collections.abc import Callable
from typing import Protocol

from hifi.runtime.health import Health
from hifi_egest.settings import EgestSettings


class SenderResources(Protocol):
    """The resources of lanes that senders use."""

    @property
    def settings(self) -> EgestSettings:
        """Settings of egest."""

    @property
    def health(self) -> Health:
        """Shows destinations that cannot be used."""

    @property
    def coloured(self) -> Callable[[], bool]:
        """Whether the stream is one of two colours."""

    @property
    def log(self) -> Callable[[], str]:
        """Identity of the stream's log; raises `Misconfigured` where Kafka does not say it."""
