"""Publish the parts of this instance's partition numbers, and the statements about the pipes that it owns."""

import asyncio
from typing import Final

from hifi.runtime.trusted_clock import read_clocks
from hifi_observe import metrics
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.ledger.open_pieces import OpenAt
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.record_keys import partition_of
from hifi_observe.pipes import ObservedPipes
from hifi_observe.watermark.chain_statements import ChainStatements
from hifi_observe.watermark.part import (
    RecentFailures,
    WatermarkPart,
    add_up,
    event_floors,
    part_of,
    raise_floors,
)
from hifi_observe.watermark.statement import Watermark, microseconds, state
from hifi_observe.watermark.watermark_store import Key, WatermarkStore, key_of

_MANY: Final = 50
"""Statements from which on they are published at most once a second."""


class WatermarkPublication:
    """Publishes at an interval.

    Args:
        store: of what is published.
        minutes: has the losses.
        pipes: of the stream.
        partitions: that this instance observes.
        publisher: writes to Kafka.
        chains: of the stream.
    """

    def __init__(
        self,
        store: WatermarkStore,
        minutes: MinuteStore,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        publisher: Publisher,
        chains: ChainStatements,
    ) -> None:
        self._store = store
        self._chains = chains
        self._minutes = minutes
        self._pipes = pipes
        self._partitions = partitions
        self._publisher = publisher
        self._failures: dict[int, RecentFailures] = {}

    async def run(self, interval_s: float) -> None:
        """Publish until cancelled."""
        statements: dict[bytes, Watermark | None] = {}
        while True:
            await asyncio.sleep(interval_s if len(statements) < _MANY else max(interval_s, 1))
            declared_names = self._pipes.destinations_in_use()
            self._chains.declare(self._pipes.links())
            watermark_parts = self._sample_parts(declared_names)
            totals = add_up(self._store.parts.values())
            self._raise_floors(declared_names, totals, watermark_parts)
            writes = [
                self._publisher.watermark_part(partition, watermark_part)
                for partition, watermark_part in watermark_parts.items()
            ]
            statements = self._make_statements(declared_names, totals)
            if statements:
                writes.append(self._publisher.watermarks(statements, self._store.writer))
            await asyncio.gather(*writes)
            metrics.SETTLED.clear()
            for statement in self._store.of(declared_names, read_clocks().wall_us):
                if statement["settled_until"] is not None:
                    labels = statement["pipe"], statement["destination"]
                    metrics.SETTLED.labels(*labels).set(microseconds(statement["settled_until"]) / 1e6)

    def _sample_parts(self, declared_names: dict[str, set[str]]) -> dict[int, WatermarkPart]:
        """The parts of the partition numbers of this instance."""
        clocks, watermark_parts = read_clocks(), {}
        published_us = self._store.settled_us()
        for partition, ledger in self._partitions.ledgers.items():
            ledger.open_events.published_us = published_us
            failures = self._failures.setdefault(partition, RecentFailures())
            watermark_part = watermark_parts[partition] = part_of(
                ledger.open_events,
                lambda pipe: declared_names.get(pipe, ()),
                failures.sample(ledger.live, clocks.wall_us),
                self._store.clock,
                clocks,
                self._store.writer,
            )
            watermark_part["pipes"] = self._pipes.registry.offset
            self._store.take_part(partition, watermark_part)
        return watermark_parts

    def _raise_floors(
        self,
        declared_names: dict[str, set[str]],
        totals: dict[Key, OpenAt],
        watermark_parts: dict[int, WatermarkPart],
    ) -> None:
        """Raise the floors of event times, in the ledgers and in the parts that were made of them just now.

        Nothing may be read in between: what is read after the floor was raised counts as late.
        """
        keys = {(pipe, name) for pipe, names in declared_names.items() for name in names} | totals.keys()
        floors_us = event_floors(self._store.parts.values(), keys, totals, self._store.event_us())
        for partition, watermark_part in watermark_parts.items():
            raise_floors(
                self._partitions.ledgers[partition].open_events.event_times, watermark_part, floors_us
            )

    def _make_statements(
        self, declared_names: dict[str, set[str]], totals: dict[Key, OpenAt]
    ) -> dict[bytes, Watermark | None]:
        """The statements about the pipes that this instance owns; None: it was deleted."""
        watermark_parts, now_us = self._store.parts, self._store.clock.time_us(read_clocks())
        losses = self._minutes.losses
        keys = self._owned(declared_names)
        statements: dict[bytes, Watermark | None] = {}
        settled_us: dict[str, int] = {}
        for pipe, destination in keys:
            statement = state(
                pipe,
                destination,
                totals.get((pipe, destination)),
                watermark_parts,
                self._partitions.count,
                self._store.published((pipe, destination)),
                now_us,
                sum(losses.get(pipe, {}).values()),
                self._pipes.timely(pipe, destination),
                self._pipes.declared_at(pipe, destination),
            )
            statement["chain"] = self._chains.state(statement, now_us or 0)
            self._store.take(statement)
            statements[key_of(pipe, destination)] = statement
            statement_us = microseconds(statement["settled_until"])
            settled_us[pipe] = min(settled_us.get(pipe, statement_us), statement_us)
        for pipe, pipe_us in settled_us.items():
            self._chains.note_settled(pipe, pipe_us)
        for key in set(self._store.keys()) - keys:
            if self.owns(key[0]):
                self._store.drop(key)
                statements[key_of(*key)] = None
        return statements

    def _owned(self, declared_names: dict[str, set[str]]) -> set[Key]:
        """Pipes and destinations that this instance states."""
        keys = {(pipe, destination) for pipe, names in declared_names.items() for destination in names}
        for watermark_part in self._store.parts.values():
            keys.update((pipe, destination) for pipe, destination, *_ in watermark_part["open"])
        return {key for key in keys if self.owns(key[0])}

    def owns(self, pipe: str) -> bool:
        """Whether this instance states the watermarks of a pipe."""
        count = self._partitions.count
        return bool(count) and partition_of(pipe, count) in self._partitions.numbers
