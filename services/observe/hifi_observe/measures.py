"""What is measured of a record: durations by name, all in microseconds.

Names: `<node>.in.<base>` and `<node>.out.<base>` (lag on arrival and departure, cumulative, from `event` or `accepted`
time), `<node>.process`, `<node>.transit` (from the append to the topic before to the node's fetch), `expel/<destination>`
(request's first byte to status line) and `end.<base>/<destination>` (to the destination's 2xx). Append times are
whole milliseconds, so what is measured with them may be 1 ms too low; durations are never below 0.
"""

from collections.abc import Mapping
from datetime import datetime

from hifi.event import ACCEPTED, ANSWERED, DESTINATION, IN, OUTCOME, SENT
from hifi_observe.stage import WRITERS, number

Headers = Mapping[str, bytes]
MILLI = 1000


def event_time_us(headers: Headers, accepted_us: int) -> int:
    """The event's own time, microseconds since 1970 UTC; its accepted time where it has none that can be read."""
    text = headers.get("ce_time")
    if text is None:
        return accepted_us
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return accepted_us
    return int(moment.timestamp() * 1_000_000) if moment.tzinfo is not None else accepted_us


def of_hop(kind: str, headers: Headers, append_us: int) -> list[tuple[str, int]]:
    """Measures of a record that a node passed on to the next topic."""
    node = WRITERS[kind]
    accepted_us = number(headers[ACCEPTED])
    event_us = event_time_us(headers, accepted_us)
    in_us = number(headers.get(IN, b"0")) or accepted_us
    return [
        (node + ".in.event", in_us - event_us),
        (node + ".in.accepted", in_us - accepted_us),
        (node + ".process", max(0, append_us - in_us)),
        (node + ".out.event", append_us - event_us),
        (node + ".out.accepted", append_us - accepted_us),
    ]


def of_receipt(headers: Headers) -> list[tuple[str, int]]:
    """Measures of a delivery: egest's part, the destination's, and end to end."""
    if headers.get(OUTCOME) != b"delivered":
        return []
    sent_us, answered_us = number(headers.get(SENT, b"0")), number(headers.get(ANSWERED, b"0"))
    if not sent_us or not answered_us:
        return []
    accepted_us = number(headers[ACCEPTED])
    event_us = event_time_us(headers, accepted_us)
    in_us = number(headers.get(IN, b"0")) or sent_us
    name = headers.get(DESTINATION, b"").decode("utf-8", "replace")
    return [
        ("egest.in.event", in_us - event_us),
        ("egest.in.accepted", in_us - accepted_us),
        ("egest.process", max(0, sent_us - in_us)),
        ("egest.out.event", answered_us - event_us),
        ("egest.out.accepted", answered_us - accepted_us),
        (f"expel/{name}", max(0, answered_us - sent_us)),
        (f"end.event/{name}", answered_us - event_us),
        (f"end.accepted/{name}", answered_us - accepted_us),
    ]


class Transit:
    """Joins a record's append with the next node's fetch, whichever is seen first. Bounded: the oldest are forgotten."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._appended: dict[tuple[str, bytes], int] = {}
        self._fetched: dict[tuple[str, bytes], int] = {}

    def appended(self, topic: str, identity: bytes, append_us: int) -> int | None:
        """A record was appended to a topic; returns the transit if the fetch is known already, microseconds."""
        fetched = self._fetched.pop((topic, identity), None)
        if fetched is not None:
            return max(0, fetched - append_us)
        self._put(self._appended, (topic, identity), append_us)
        return None

    def fetched(self, topic: str, identity: bytes, in_us: int) -> int | None:
        """The reader of a topic fetched the event; returns the transit if the append is known, microseconds."""
        appended = self._appended.pop((topic, identity), None)
        if appended is not None:
            return max(0, in_us - appended)
        self._put(self._fetched, (topic, identity), in_us)
        return None

    def _put(self, where: dict[tuple[str, bytes], int], key: tuple[str, bytes], value: int) -> None:
        where[key] = value
        if len(where) > self._limit:
            del where[next(iter(where))]
