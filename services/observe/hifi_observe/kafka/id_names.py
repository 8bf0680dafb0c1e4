"""Look up the `ce_id` of lost and late events while Kafka still has them, for reports that are made weeks later."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import orjson

from hifi.runtime import log
from hifi.runtime.errors import Overloaded, Retryable
from hifi_observe.kafka import record_lookup
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import NamedIds
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings

_INTERVAL_S: Final = 5.0
logger = log.get(__name__)


class IdNames:
    """Names the lost and late events of the pipes that this instance owns; those of pipes that mask the id never.

    Args:
        settings: address of Kafka.
        store: has the ids.
        pipes: what they mask.
        publisher: writes the names.
        slots: admit few look-ups at a time.
        owned: which of some pipes belong to this instance.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        store: MinuteStore,
        pipes: ObservedPipes,
        publisher: Publisher,
        slots: LookupSlots,
        owned: Callable[[Iterable[str]], list[str]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._pipes = pipes
        self._publisher = publisher
        self._slots = slots
        self._owned = owned

    async def run(self) -> None:
        """Look names up until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            for pipe in self._owned(sorted(self._store.ids)):
                if self._pipes.hides_id(pipe):
                    continue
                for minute in sorted(self._store.ids[pipe], reverse=True):
                    await self._name_events(pipe, minute)

    async def _name_events(self, pipe: str, minute: int) -> None:
        """Name the events of a minute, unless they were looked up or the minute is no longer kept."""
        ids_json = self._store.ids[pipe].get(minute)
        if ids_json is None or minute not in self._store.minutes[pipe]:
            return
        ids = NamedIds.load(orjson.loads(ids_json))
        merged = self._store.minute(pipe, minute)
        if ids.looked_up or merged is None:
            return
        events = [
            {"partition": event.partition, "epoch": event.epoch, "sequence": event.sequence}
            for event in (*ids.lost, *ids.late)
        ]
        try:
            names_by_identity = await self._find_names(merged, events)
        except Overloaded:
            return
        except Retryable as error:
            logger.warning("ids-not-named", pipe=pipe, minute=minute, error=str(error))
            return
        if self._store.ids[pipe].get(minute) != ids_json:
            return  # the minute was amended meanwhile
        named_json = replace(ids, names={**ids.names, **names_by_identity}, looked_up=True).dump()
        key = record_keys.ids(pipe, minute)
        self._store.take(key, orjson.dumps(named_json))
        await self._publisher.pipe(pipe, [(key, named_json)])

    async def _find_names(self, merged: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, str]:
        with self._slots.take():
            ids_by_event = await record_lookup.ce_ids(self._settings, self._settings.topics, merged, events)
        return {f"{epoch}:{sequence}": name for (epoch, sequence), name in ids_by_event.items()}
