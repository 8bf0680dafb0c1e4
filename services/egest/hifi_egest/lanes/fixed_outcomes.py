"""Outcomes that no answer of a destination decides."""

from typing import Final

from hifi_egest.policy.outcome import DeadLettered, Refusal

FAILED: Final = DeadLettered("egest-failed", "egest failed on this event; see its log")
REVOKED: Final = Refusal("handed-on", "the partition was revoked from the instance that sent it")


def deleted(pipe: str, destination: str) -> DeadLettered:
    """The dead letter of a delivery whose pipe or destination was deleted."""
    return DeadLettered(
        "pipe-deleted", f"the pipe {pipe} no longer has a destination {destination}; declare it, then replay"
    )
