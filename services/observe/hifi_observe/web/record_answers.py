"""Lost events, single events and dead letters, which are looked up in Kafka."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hifi.runtime.errors import Overloaded, Retryable
from hifi.runtime.http.problem import Problem, retry_later
from hifi_observe.kafka import record_lookup
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.minutes.open_minute import PROVISIONAL
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import views

_RETRY_S: Final = 2
"""Time after which a look-up that was refused should be tried again, seconds."""


class RecordAnswers:
    """Answers about single records.

    Args:
        settings: address of Kafka.
        pipes: what they mask.
        partitions: of the stream.
        slots: admit few look-ups at a time.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        slots: LookupSlots,
    ) -> None:
        self._settings = settings
        self._pipes = pipes
        self._partitions = partitions
        self._slots = slots

    async def lost(self, merged: Mapping[str, Any], limit: int, *, resolved: bool) -> dict[str, Any]:
        """List the lost events of a minute.

        Args:
            merged: the minute.
            limit: most events.
            resolved: whether their `ce_id` is added where Kafka still has it.

        Raises:
            Problem: 503, Kafka does not answer, or too many look-ups are running.
        """
        events = views.lost(merged)[:limit]
        is_hidden = self._pipes.hides_id(merged["pipe"])
        if resolved and events and not is_hidden:
            with self._slot():
                ce_ids = await record_lookup.ce_ids(self._settings, self._settings.topics, merged, events)
            for lost_event in events:
                lost_event["ce_id"] = ce_ids.get((lost_event["epoch"], lost_event["sequence"]))
        return {
            "pipe": merged["pipe"],
            "minute": merged["minute"],
            "count": merged["lost"],
            "hidden": is_hidden,
            "hidden_because": self._pipes.why_hidden(merged["pipe"]) or None,
            "lost": events,
        }

    async def event(self, merged: Mapping[str, Any], ce_id: str) -> dict[str, Any]:
        """Say what became of the events of a minute with a `ce_id`, and which destinations did not want them.

        Args:
            merged: the minute; of one that is still open the answer is `provisional`.
            ce_id: of the event.

        Raises:
            Problem: 404, the pipe masks its ids or was deleted; 503, Kafka does not answer, or too many look-ups
                run.
        """
        pipe = merged["pipe"]
        if self._pipes.hides_id(pipe):
            raise Problem(404, f"Ids are hidden: {self._pipes.why_hidden(pipe)}.", title="No such event")
        with self._slot():
            events = await record_lookup.outcomes(self._settings, self._settings.topics, merged, ce_id)
        declared_names = self._pipes.destinations().get(pipe, set())
        for event in events:
            wanted_names = event["wanted"]
            event["not_wanted"] = [] if wanted_names is None else sorted(declared_names - set(wanted_names))
        return {
            "pipe": pipe,
            "minute": merged["minute"],
            "id": ce_id,
            "provisional": merged["state"] == PROVISIONAL,
            "events": events,
        }

    def why_hidden(self, pipe: str) -> str:
        """The reason why the event ids of a pipe are not shown; empty: they are."""
        return self._pipes.why_hidden(pipe)

    async def dead(self, pipe: str, limit: int, conditions: Mapping[str, str]) -> list[dict[str, Any]]:
        """List the newest dead letters of a pipe.

        Args:
            pipe: its name.
            limit: most dead letters.
            conditions: filter by `service`, `reason` and `destination`; empty values match all.

        Raises:
            Problem: 503, Kafka does not answer, or too many look-ups are running.
        """
        with self._slot():
            return await record_lookup.dead_letters(
                self._settings,
                self._settings.topics,
                self._partitions.count,
                pipe,
                limit=limit,
                masks=self._pipes.masks(pipe),
                hides_id=self._pipes.hides_id(pipe),
                conditions=conditions,
            )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold a slot for a look-up; what it raises becomes a problem."""
        try:
            with self._slots.take():
                yield
        except Overloaded as error:
            raise retry_later(f"{error}; wait until one has ended.", _RETRY_S) from None
        except Retryable as error:
            raise Problem(503, str(error), title="Kafka does not answer") from None
