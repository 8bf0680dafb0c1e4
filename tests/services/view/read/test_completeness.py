"""A view is never called complete while an event from before is missing, and the time comes when it is complete."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_view.read.completeness import CompleteUntil, Cuts

PARTITIONS = 2


class Flow:
    """`raw` and the topics of services behind it, by partition: events are the times of their acceptance."""

    def __init__(self, services: int) -> None:
        self.topics: list[list[list[int]]] = [[[] for _ in range(PARTITIONS)] for _ in range(services + 1)]
        self.read_offsets = [[0] * PARTITIONS for _ in range(services)]
        """Offset up to which each service has written its output; it may have committed less."""
        self.committed = [[0] * PARTITIONS for _ in range(services)]
        self.view = [0] * PARTITIONS
        self.time = 0
        self.cuts = Cuts(services)
        self.complete = CompleteUntil()
        self._tick = self._ticks(services)

    def accept(self, partition: int) -> None:
        self.time += 1
        self.topics[0][partition].append(self.time)

    def process(self, service: int, partition: int) -> None:
        """Write the output for one record. Every third event ends here, such as a dead letter."""
        offset, source = self.read_offsets[service][partition], self.topics[service][partition]
        if offset < len(source):
            if source[offset] % 3:
                self.topics[service + 1][partition].append(source[offset])
            self.read_offsets[service][partition] = offset + 1

    def commit(self, service: int, partition: int) -> None:
        self.committed[service][partition] = self.read_offsets[service][partition]

    def die(self, service: int, partition: int) -> None:
        """Start again at the committed offset: some output is written twice."""
        self.read_offsets[service][partition] = self.committed[service][partition]

    def apply(self, partition: int) -> None:
        self.view[partition] = len(self.topics[-1][partition])
        self.complete.reached(dict(enumerate(self.view)))

    def tick(self) -> None:
        """Make one request to Kafka; other steps happen between two of them."""
        next(self._tick)

    def end_offsets(self, topic: int) -> dict[int, int]:
        return {partition: len(events) for partition, events in enumerate(self.topics[topic])}

    def missing(self) -> set[int]:
        """Events that were accepted and must come to the view, and are not in it."""
        view_times = {
            time for partition, end in enumerate(self.view) for time in self.topics[-1][partition][:end]
        }
        filtered_times = {time for time in range(1, self.time + 1) if len(self.topics) > 1 and time % 3 == 0}
        return set(range(1, self.time + 1)) - view_times - filtered_times

    def _ticks(self, services: int) -> Iterator[None]:
        while True:
            self.time += 1  # an own moment, before the ends are read
            cut_time = self.time
            # No event has this time, so none is missing.
            self.topics[0][0].append(cut_time)
            yield
            self.cuts.begin(cut_time, self.end_offsets(0))
            yield
            for service in range(services):
                committed = dict(enumerate(self.committed[service]))
                yield
                self.cuts.advance(service, committed, self.end_offsets(service + 1))
                yield
            for cut in self.cuts.take():
                self.complete.add(cut)
            self.complete.reached(dict(enumerate(self.view)))


STEP = st.tuples(
    st.sampled_from(["accept", "process", "process", "commit", "die", "apply", "tick", "tick", "tick"]),
    st.integers(0, 1),
    st.integers(0, PARTITIONS - 1),
)


@pytest.mark.parametrize("services", [0, 1, 2])
@given(steps=st.lists(STEP, max_size=120))
def test_nothing_is_missing_before_the_time_and_the_time_comes(
    services: int, steps: list[tuple[str, int, int]]
) -> None:
    flow = Flow(services)
    last_until = 0
    for step, service, partition in steps:
        if step in ("accept", "apply"):
            getattr(flow, step)(partition)
        elif step == "tick":
            flow.tick()
        elif service < services:
            getattr(flow, step)(service, partition)
        until_us = flow.complete.time_us or 0
        assert until_us >= last_until, "it goes back"
        last_until = until_us
        assert not {time for time in flow.missing() if time < until_us}
    last_time = flow.time
    for _ in range(20 * (services + 1)):
        for service in range(services):
            for partition in range(PARTITIONS):
                while flow.read_offsets[service][partition] < len(flow.topics[service][partition]):
                    flow.process(service, partition)
                flow.commit(service, partition)
        for partition in range(PARTITIONS):
            flow.apply(partition)
        flow.tick()
    assert (flow.complete.time_us or 0) > last_time


def test_a_service_that_stands_still_costs_no_memory() -> None:
    cuts = Cuts(1)
    for time in range(1000):
        cuts.begin(time, {0: time + 1})
    cuts.advance(0, {0: 40}, {0: 7})
    (cut,) = cuts.take()
    assert (cut.time_us, cut.end_offsets) == (39, {0: 7})
    cuts.advance(0, {0: 2000}, {0: 8})
    (cut,) = cuts.take()
    assert cut.time_us == 63
