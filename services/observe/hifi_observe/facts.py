"""Reading a record's headers: whose event it is and which stages it shows."""

from collections.abc import Mapping
from typing import NamedTuple

from hifi.errors import NotAnEvent
from hifi.event import DESTINATION, MINUTE, NODE, OUTCOME, PASS, PIPE, REPLAY, SEQ, TO
from hifi_observe import stage
from hifi_observe.stage import Stage


class Fact(NamedTuple):
    """What one record says."""

    pipe: str
    minute: int
    epoch: str
    sequence: int
    stages: tuple[Stage, ...]
    replay: bool
    """It comes from a replay of dead letters."""


def read(kind: str, headers: Mapping[str, bytes]) -> Fact:
    """Read the headers of a record of a kind of topic.

    Raises:
        NotAnEvent: a header of hifi's is missing or malformed.
    """
    try:
        epoch, _, sequence = headers[SEQ].partition(b":")
        return Fact(
            headers[PIPE].decode("ascii"),
            int(headers[MINUTE]),
            epoch.decode("ascii"),
            int(sequence),
            _stages(kind, headers),
            headers.get(REPLAY, b"0") != b"0",
        )
    except (KeyError, ValueError) as error:
        raise NotAnEvent(f"a header of hifi's is missing or malformed: {error}") from None


def _stages(kind: str, headers: Mapping[str, bytes]) -> tuple[Stage, ...]:
    if kind == stage.ENRICHED:
        return stage.wanted(headers.get(TO, b""))
    if kind == stage.RECEIPTS:
        return stage.receipt(headers.get(DESTINATION, b""), headers[OUTCOME], headers.get(PASS, b"0"))
    if kind in (stage.RETRY_IN, stage.RETRY_OUT):
        return stage.retry(kind, headers[DESTINATION], headers.get(PASS, b"0"))
    if kind == stage.DEAD_LETTER:
        return stage.dead(headers.get(DESTINATION, b""), headers.get(NODE, b""))
    return (Stage(kind),)
