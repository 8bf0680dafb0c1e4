"""Choose the sender of a destination by its kind."""

from collections.abc import Callable

from hifi.delivery.installed_kinds import installed_sender_kind
from hifi.delivery.sender import Sender, SenderContext
from hifi.pipe.model import ConnectorDestination, Destination
from hifi.runtime import log
from hifi_egest.delivery.delivery import OutboundRequest
from hifi_egest.senders.connector_sender import ConnectorSender
from hifi_egest.senders.resources import SenderResources
from hifi_egest.senders.unusable_sender import UnusableSender

logger = log.get(__name__)


def make_sender(
    pipe: str,
    destination: Destination,
    resources: SenderResources,
    *,
    missing_changed: Callable[[], None],
) -> Sender[OutboundRequest]:
    """Make the sender of a destination.

    Args:
        pipe: name.
        destination: as declared.
        resources: shared by all lanes.
        missing_changed: called whenever `missing` of the sender changes.
    """
    if isinstance(destination, ConnectorDestination):
        return ConnectorSender(pipe, destination, resources, missing_changed=missing_changed)
    refresh_s = resources.settings.egest_secrets_refresh_s
    context = SenderContext(pipe, resources.health, refresh_s, missing_changed)
    try:
        return installed_sender_kind(destination.kind).open(destination, context)
    except Exception as error:  # of this destination alone
        logger.exception("open-failed", pipe=pipe, destination=destination.name, kind=destination.kind)
        missing = f"the kind {destination.kind} cannot be opened: {type(error).__name__}; see the log"
        return UnusableSender(pipe, destination.name, missing, resources.health)
