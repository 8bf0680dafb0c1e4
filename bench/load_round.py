"""Sends events to a running mesh, does something meanwhile, and waits for all deliveries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.sender import CONNECTIONS
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.rate.event_load import EventLoad

MS_NS, SECOND_NS = 1_000_000, 1_000_000_000


@dataclass(slots=True)
class LoadRounds:
    """Rounds of load on one mesh, whose events have ids of their own."""

    made: LoadTest
    load: EventLoad = field(default_factory=EventLoad)
    _log_reader: RequestLogReader = field(init=False)
    _first: int = 0

    def __post_init__(self) -> None:
        self._log_reader = RequestLogReader(self.made.workspace.request_log)

    async def run(
        self,
        rate: float,
        seconds: float,
        side_task: Callable[[], Awaitable[None]] | None = None,
        connections: int = CONNECTIONS,
    ) -> "LoadRound":
        """Send at a rate for some seconds; `side_task` runs beside it and is awaited after the last event."""
        count = max(self.load.batch, round(rate * seconds))
        first_number, self._first = self._first, self._first + count
        expected = await asyncio.to_thread(
            lambda: dict(self.load.write(self.made.workspace, count, first_number))
        )
        send_task = asyncio.create_task(self.made.send(rate, self.load.batch, connections=connections))
        try:
            if side_task is not None:
                await side_task()
            await send_task
        finally:
            send_task.cancel()
        sent_events = await asyncio.to_thread(read_send_log, self.made.workspace.send_log)
        verdict = await self.made.wait_for_arrivals(self._log_reader, sent_events, expected)
        return LoadRound(sent_events, expected, verdict)


@dataclass(frozen=True, slots=True)
class LoadRound:
    """Sent events and arrivals. Pure."""

    sent: Mapping[str, SentEvent]
    expected: Mapping[str, Mapping[str, Any]]
    verdict: Comparison

    def totals(self) -> dict[str, int]:
        """Events that were not accepted, lost or delivered wrongly, and duplicates."""
        accepted_ids = [name for name, sent_event in self.sent.items() if sent_event.accepted]
        arrived = self.verdict.arrived
        return {
            "sent": len(self.sent),
            "refused": len(self.sent) - len(accepted_ids),
            "lost": sum((path, name) not in arrived for name in accepted_ids for path in self.expected[name]),
            "duplicates": self.verdict.duplicates,
            "wrong": self.verdict.mismatched + self.verdict.unknown,
        }

    def lags_ms(self, slice_s: float) -> list[dict[str, float]]:
        """p50, p95 and maximum lag, due time to answer, of each slice of `slice_s` seconds of due times."""
        slices: dict[int, list[float]] = {}
        for due_ns, lag_ms in self._lags():
            slices.setdefault(int(due_ns / (slice_s * SECOND_NS)), []).append(lag_ms)
        return [lag_figures(slices[key]) for key in sorted(slices)]

    def lag_ms(self) -> dict[str, float]:
        """p50, p95 and maximum lag of all deliveries, due time to answer."""
        return lag_figures([lag_ms for _, lag_ms in self._lags()])

    def lag_from_sent_ms(self) -> dict[str, float]:
        """p50, p95 and maximum lag of all deliveries, from the time when the sender sent the request.

        Under overload the sender itself is late, because each of its connections waits for an answer.
        """
        return lag_figures(
            [
                (at_ns - self.sent[name].sent_ns) / MS_NS
                for (_, name), at_ns in self.verdict.arrived.items()
                if name in self.sent
            ]
        )

    def offered_rate(self) -> int:
        """Events that the sender really sent, events per second."""
        times_ns = [sent_event.sent_ns for sent_event in self.sent.values() if sent_event.sent_ns]
        return round(len(times_ns) * SECOND_NS / max(1, max(times_ns) - min(times_ns)))

    def answer_ms(self, *, accepted: bool) -> dict[str, float]:
        """p50, p95 and maximum time from sending a request to ingest's answer, of accepted or of refused events."""
        waits_ms = [
            (sent_event.answered_ns - sent_event.sent_ns) / MS_NS
            for sent_event in self.sent.values()
            if sent_event.status and sent_event.accepted is accepted
        ]
        return lag_figures(waits_ms)

    def _lags(self) -> Iterator[tuple[int, float]]:
        first_ns = min(sent_event.due_ns for sent_event in self.sent.values())
        for (_, name), at_ns in self.verdict.arrived.items():
            if name in self.sent:
                due_ns = self.sent[name].due_ns
                yield due_ns - first_ns, (at_ns - due_ns) / MS_NS


def lag_figures(lags_ms: list[float]) -> dict[str, float]:
    """p50, p95 and maximum, milliseconds; empty without values."""
    ordered_ms = sorted(lags_ms)
    if not ordered_ms:
        return {}
    return {
        "p50": round(ordered_ms[len(ordered_ms) // 2]),
        "p95": round(ordered_ms[int(len(ordered_ms) * 0.95)]),
        "max": round(ordered_ms[-1]),
    }
