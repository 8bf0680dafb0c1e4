"""Choose the sender of a destination by its kind."""

from collections.abc import Callable

from hifi.pipe.model import ConnectorDestination, Destination, HttpDestination
from hifi_egest.senders.connector_sender import ConnectorSender
from hifi_egest.senders.request_sender import RequestSender
from hifi_egest.senders.sender import Sender, SenderResources


def make_sender(
    pipe: str,
    destination: Destination,
    resources: SenderResources,
    *,
    missing_changed: Callable[[], None],
) -> Sender:
    """Make the sender of a destination.

    Args:
        pipe: name.
        destination: as declared.
        resources: shared by all lanes.
        missing_changed: called whenever `missing` of the sender changes.
    """
    if isinstance(destination, HttpDestination):
        return RequestSender(pipe, destination, resources, missing_changed=missing_changed)
    assert isinstance(destination, ConnectorDestination)
    return ConnectorSender(pipe, destination, resources, missing_changed=missing_changed)
