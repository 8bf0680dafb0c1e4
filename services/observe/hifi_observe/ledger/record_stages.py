"""Reading a record's headers: which stages of its event it shows."""

from collections.abc import Callable, Mapping

from hifi.event import DESTINATION, OUTCOME, PASS, SERVICE, TO
from hifi_observe.ledger import stage
from hifi_observe.ledger.stage import Stage

Stages = Callable[[Mapping[str, bytes]], tuple[Stage, ...]]
"""The stages that a record's headers show. Raises KeyError where a header is missing."""


def deciding(kind: str) -> tuple[str, ...]:
    """The headers that `stages_of` looks at: records that are alike in these show the same stages."""
    if kind == stage.ENRICHED:
        return (TO,)
    if kind == stage.RECEIPTS:
        return (DESTINATION, OUTCOME, PASS)
    if kind in (stage.RETRY_IN, stage.RETRY_OUT):
        return (DESTINATION, PASS)
    return (DESTINATION, SERVICE) if kind == stage.DEAD_LETTER else ()


def stages_of(kind: str) -> Stages:
    """How to read the records of a kind of topic."""
    if kind == stage.ENRICHED:
        return lambda headers: stage.wanted(headers.get(TO, b""))
    if kind == stage.RECEIPTS:
        return lambda headers: stage.receipt(
            headers.get(DESTINATION, b""), headers[OUTCOME], headers.get(PASS, b"0")
        )
    if kind in (stage.RETRY_IN, stage.RETRY_OUT):
        # The retrier counts a trip when it brings a delivery back: the trip that begins here has the next number.
        begins = int(kind == stage.RETRY_IN)
        return lambda headers: stage.retry(
            kind, headers[DESTINATION], stage.number(headers.get(PASS, b"0")) + begins
        )
    if kind == stage.DEAD_LETTER:
        return lambda headers: stage.dead(headers.get(DESTINATION, b""), headers.get(SERVICE, b""))
    plain = (Stage(kind),)
    return lambda _: plain
