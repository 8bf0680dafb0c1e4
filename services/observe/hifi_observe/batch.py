"""A fetched batch of one topic, sorted by pipe and minute before anything is entered: the hot path of observe.

At 2,000 events a second every event passes here about four times, so whatever can be done once for a group of records
is not done for each.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from hifi.event import ACCEPTED, ANSWERED, IN, SENT
from hifi_observe import measures, stage
from hifi_observe.cell import Cell
from hifi_observe.measures import Transit
from hifi_observe.stage import Stage

_BEFORE = {stage.NORMALIZED: stage.RAW, stage.ENRICHED: stage.NORMALIZED, stage.RECEIPTS: stage.ENRICHED}
"""Kind of topic to the one that its writer reads."""
_HOPS = frozenset((stage.RAW, stage.NORMALIZED, stage.ENRICHED))
Sequences = defaultdict[tuple[tuple[Stage, ...], bytes], list[int]]


@dataclass(slots=True)
class Place:
    """The records of a batch that belong to one cell."""

    cell: Cell
    through: int
    """Records below this offset were counted before a restart."""
    shown: Sequences = field(default_factory=lambda: defaultdict(list))
    passed: Sequences = field(default_factory=lambda: defaultdict(list))
    rows: list[tuple[bytes, int, int, int, int]] = field(default_factory=list)
    """Of a hop: identity, in, append, accepted, event time; all in microseconds."""
    receipts: defaultdict[bytes, list[tuple[bytes, int, int, int, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Destination to identity, in, sent, answered, accepted, event time."""

    def enter(self) -> None:
        """Put the sequences into the cell."""
        for (stages, epoch), sequences in self.shown.items():
            self.cell.show(stages, epoch.decode("ascii", "replace"), sequences)
        for (stages, epoch), sequences in self.passed.items():
            self.cell.pass_by(stages[0], epoch.decode("ascii", "replace"), sequences)

    def measured(
        self,
        kind: str,
        headers: Mapping[str, bytes],
        identity: bytes,
        append_ms: int,
        stages: tuple[Stage, ...],
    ) -> None:
        """Note the times of a record.

        Raises:
            KeyError, ValueError: a time is missing or malformed.
        """
        if kind in _HOPS:
            accepted_us = int(headers[ACCEPTED])
            event_us = measures.event_time_us(headers, accepted_us)
            self.rows.append((identity, int(headers[IN]), append_ms * 1000, accepted_us, event_us))
        elif stages[0].kind == "delivered" and SENT in headers:
            accepted_us = int(headers[ACCEPTED])
            times = (
                int(headers.get(IN, headers[SENT])),
                int(headers[SENT]),
                int(headers[ANSWERED]),
                accepted_us,
                measures.event_time_us(headers, accepted_us),
            )
            self.receipts[stages[0].who.encode()].append((identity, *times))

    def measure(self, kind: str, transit: Transit) -> list[int]:
        """Put all durations into the cell; returns the end-to-end lags from accepted time, microseconds."""
        if self.rows:
            self._hop(kind, transit)
        ends: list[int] = []
        for name, rows in self.receipts.items():
            self._fetched(kind, transit, [(row[0], row[1]) for row in rows])
            ends += self._deliveries(name.decode(), rows)
        return ends

    def _hop(self, kind: str, transit: Transit) -> None:
        node, put, rows = stage.WRITERS[kind], self.cell.measure, self.rows
        put(node + ".in.event", [row[1] - row[4] for row in rows])
        put(node + ".in.accepted", [row[1] - row[3] for row in rows])
        put(node + ".process", [max(0, row[2] - row[1]) for row in rows])
        put(node + ".out.event", [row[2] - row[4] for row in rows])
        put(node + ".out.accepted", [row[2] - row[3] for row in rows])
        self._fetched(kind, transit, [(row[0], row[1]) for row in rows])
        known = transit.appended(kind, ((row[0], row[2]) for row in rows))
        if known:
            put(stage.READERS[kind] + ".transit", known)

    def _fetched(self, kind: str, transit: Transit, fetched: list[tuple[bytes, int]]) -> None:
        before = _BEFORE.get(kind)
        if before is not None:
            known = transit.fetched(before, fetched)
            if known:
                self.cell.measure(stage.READERS[before] + ".transit", known)

    def _deliveries(self, name: str, rows: list[tuple[bytes, int, int, int, int, int]]) -> list[int]:
        put = self.cell.measure
        ends = [answered - accepted for _, _, _, answered, accepted, _ in rows]
        ends_from_event = [answered - event for _, _, _, answered, _, event in rows]
        put("egest.in.event", [in_us - event for _, in_us, _, _, _, event in rows])
        put("egest.in.accepted", [in_us - accepted for _, in_us, _, _, accepted, _ in rows])
        put("egest.process", [max(0, sent - in_us) for _, in_us, sent, _, _, _ in rows])
        put("egest.out.event", ends_from_event)
        put("egest.out.accepted", ends)
        put(f"expel/{name}", [max(0, answered - sent) for _, _, sent, answered, _, _ in rows])
        put(f"end.event/{name}", ends_from_event)
        put(f"end.accepted/{name}", ends)
        return ends
