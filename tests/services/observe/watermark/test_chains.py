"""A chain's watermark never covers an event that is still on its way, wherever that is: against a plain oracle."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services.observe.watermark.test_statement import NOW_US, S, part, stated

from hifi_observe.watermark.chain_statements import ChainStatements
from hifi_observe.watermark.chains import (
    Chain,
    ChainLink,
    ChainReading,
    ChainSegment,
    TopicEnd,
    circle,
    held_by,
    links_of,
    servers_of,
    via,
)
from hifi_observe.watermark.statement import Watermark, iso, microseconds
from hifi_observe.watermark.watermark_store import WatermarkStore

LEGS = TopicEnd(servers_of("a:1, b:1"), "legs")
DELAYS = TopicEnd(servers_of("b:1"), "delays")
PARTITIONS = 2


class Stage:
    """A pipe: events wait at it until they are settled, and its watermark follows with a delay."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int]] = []
        """Time and event."""
        self.settled: set[int] = set()

    def settled_us(self, now_us: int) -> int:
        return min((at_us for at_us, event in self.accepted if event not in self.settled), default=now_us)


class Line:
    """Two pipes with a topic in between, all in plain sets: the truth."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_us = 1_000
        self.first, self.second = Stage(), Stage()
        self.topic: list[list[int | None]] = [[] for _ in range(PARTITIONS)]
        """Partition to its records; None is a marker of a transaction."""
        self.read_offsets = [0] * PARTITIONS
        self.chain = Chain(LEGS, ["flights/legs"])
        self.published_us = 0
        self.stated_us = (0, 0)
        """Watermarks of both pipes as they were stated last."""

    def accept(self) -> None:
        self.first.accepted.append((self.now_us, len(self.first.accepted)))

    def deliver(self) -> None:
        """Some events of the first pipe come to their end: in the topic, or without it."""
        for _, event in self.first.accepted:
            if event not in self.first.settled and self.chance.random() < 0.5:
                if self.chance.random() < 0.8:
                    self.topic[event % PARTITIONS] += [event, None]
                self.first.settled.add(event)

    def collect(self) -> None:
        """Read a part of a partition; its offset may be committed later."""
        partition = self.chance.randrange(PARTITIONS)
        end = self.chance.randint(self.read_offsets[partition], len(self.topic[partition]))
        for event in self.topic[partition][self.read_offsets[partition] : end]:
            if event is not None:
                self.second.accepted.append((self.now_us, event))
        self.read_offsets[partition] = end

    def settle(self) -> None:
        for _, event in self.second.accepted:
            if self.chance.random() < 0.5:
                self.second.settled.add(event)

    def state(self) -> None:
        """State the watermarks of both pipes."""
        self.stated_us = self.first.settled_us(self.now_us), self.second.settled_us(self.now_us)

    def look(self, run_between: Any) -> None:
        """Read the topic as observe does, while other things happen."""
        upstream_us = self.stated_us[0]
        run_between()
        end_offsets = {partition: len(records) for partition, records in enumerate(self.topic)}
        run_between()
        read_offsets = {}
        for partition, offset in enumerate(self.read_offsets):
            records = self.topic[partition][offset : end_offsets[partition]]
            read_offsets[partition] = (
                end_offsets[partition] if not any(event is not None for event in records) else offset
            )
        run_between()
        self.now_us += 1
        self.chain.take(ChainReading(upstream_us, end_offsets, read_offsets, self.now_us))

    def judge(self) -> None:
        settled_us = max(self.published_us, self.chain.settled_us(self.stated_us[1]))
        self.chain.drop_before(self.stated_us[1])
        assert self.chain.settled_us(self.stated_us[1]) <= settled_us
        self.published_us = settled_us
        topic_events = {event for records in self.topic for event in records if event is not None}
        unsettled = [
            event
            for at_us, event in self.first.accepted
            if at_us < settled_us
            and (
                event not in self.first.settled
                or (event in topic_events and event not in self.second.settled)
            )
        ]
        assert not unsettled, (settled_us, unsettled)

    def step(self) -> None:
        self.now_us += self.chance.choice((0, 1, 50))
        self.chance.choice((self.accept, self.deliver, self.collect, self.settle, self.state))()


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 300))
def test_no_event_acknowledged_before_a_chains_time_is_on_its_way(seed: int, steps: int) -> None:
    line = Line(seed)
    for _ in range(steps):
        line.step()
        if line.chance.random() < 0.3:
            line.look(lambda: line.step() if line.chance.random() < 0.5 else None)
        line.judge()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_comes_up_to_the_time_that_the_first_pipe_had_when_all_is_settled(seed: int) -> None:
    line = Line(seed)
    for _ in range(3_000):
        line.step()
        line.look(lambda: None)
        line.judge()
    assert line.published_us > 1_000
    for event in (*line.first.accepted, *line.first.accepted):
        del event
        line.deliver()
    line.first.settled.update(event for _, event in line.first.accepted)
    line.read_offsets = [len(records) for records in line.topic]
    line.second.accepted = [
        (line.now_us, event) for records in line.topic for event in records if event is not None
    ]
    line.second.settled = {event for _, event in line.second.accepted}
    line.now_us += 1
    line.state()
    line.look(lambda: None)
    expected_us = line.now_us - 1
    line.now_us += 1
    line.state()
    line.judge()
    assert line.published_us == expected_us


def test_a_topic_links_pipes_if_name_and_a_server_are_the_same() -> None:
    writes = {
        ("flights", "legs"): LEGS,
        ("old", "legs"): TopicEnd(servers_of("c:1"), "legs"),
        ("x", "y"): DELAYS,
    }
    reads = {"carriers": TopicEnd(servers_of("B:1"), "legs"), "lonely": TopicEnd(servers_of("b:1"), "other")}
    links = links_of(writes, reads)
    assert links == {"carriers": ChainLink("carriers", reads["carriers"], (("flights", "legs"),))}


def test_all_that_is_before_a_pipe_is_named_and_a_circle_is_found() -> None:
    links = links_of(
        {("flights", "legs"): LEGS, ("carriers", "delays"): DELAYS, ("carriers", "back"): LEGS},
        {"carriers": LEGS, "alerts": DELAYS},
    )
    assert via(links, "alerts") == ["carriers/back", "carriers/delays", "flights/legs"]
    assert circle(links, "alerts") == circle(links, "carriers") == ["carriers"]
    links = links_of(
        {("flights", "legs"): LEGS, ("carriers", "delays"): DELAYS}, {"carriers": LEGS, "alerts": DELAYS}
    )
    assert via(links, "alerts") == ["carriers/delays", "flights/legs"]
    assert circle(links, "alerts") == []


def test_the_part_that_is_furthest_behind_the_one_before_is_named() -> None:
    parts = [ChainSegment("a", 90 * S), ChainSegment("b", 80 * S), ChainSegment("c", 79 * S)]
    assert held_by(parts, 92 * S) == "b"
    assert held_by([ChainSegment("a", 90 * S), ChainSegment("b", 88 * S)], 91 * S) is None
    assert held_by([ChainSegment("a", 90 * S), ChainSegment("b", 0), ChainSegment("c", 0)], 91 * S) == "b"


def statement(pipe: str, destination: str, behind_s: int = 1) -> Watermark:
    return stated(part(), part(reached=NOW_US - behind_s * S)) | {"pipe": pipe, "destination": destination}


def chains_of_three(behind_s: int = 1) -> tuple[WatermarkStore, ChainStatements]:
    store = WatermarkStore("this")
    chains = ChainStatements(store)
    chains.declare(
        links_of(
            {("flights", "legs"): LEGS, ("carriers", "delays"): DELAYS}, {"carriers": LEGS, "alerts": DELAYS}
        )
    )
    store.take(statement("flights", "legs", behind_s))
    return store, chains


def pass_on(
    store: WatermarkStore, chains: ChainStatements, pipe: str, destination: str, read_offset: int
) -> Any:
    """Look at the topic before a pipe, and state its chain."""
    _, upstream_us = chains.upstream(pipe)
    chains.chain(pipe).take(ChainReading(upstream_us, {0: 5}, {0: read_offset}, NOW_US - 3 * S))
    new_statement = statement(pipe, destination)
    new_statement["chain"] = chains.state(new_statement, NOW_US)
    store.take(new_statement)
    return new_statement["chain"]


def test_a_chain_of_three_pipes_has_the_time_of_the_first_once_it_passed_all() -> None:
    store, chains = chains_of_three(behind_s=60)
    carriers = pass_on(store, chains, "carriers", "delays", read_offset=5)
    assert carriers["settled_until"] == iso(NOW_US - 60 * S)
    assert carriers["held_by"] == "flights to legs"
    alerts = pass_on(store, chains, "alerts", "desk", read_offset=5)
    assert alerts == {
        "settled_until": iso(NOW_US - 60 * S),
        "via": ["carriers/delays", "flights/legs"],
        "held_by": "flights to legs",
        "deleted_at": None,
        "because": [],
    }
    assert chains.state(statement("flights", "legs"), NOW_US) is None


def test_a_topic_that_collect_has_not_read_holds_the_chain() -> None:
    store, chains = chains_of_three()
    chain = pass_on(store, chains, "carriers", "delays", read_offset=4)
    assert (chain["settled_until"], chain["held_by"]) == (None, "topic legs")
    assert pass_on(store, chains, "carriers", "delays", read_offset=5)["settled_until"] == iso(NOW_US - S)


def test_what_cannot_be_stated_says_why_and_what_was_stated_stands() -> None:
    store, chains = chains_of_three()
    chains.state(statement("carriers", "delays"), NOW_US)
    chain = chains.state(statement("carriers", "delays"), NOW_US)
    assert chain is not None
    assert chain["because"] == ["topic legs: its offsets have not been read yet"]
    pass_on(store, chains, "carriers", "delays", read_offset=5)
    chains.chain("carriers").forget("it does not exist")
    chain = chains.state(statement("carriers", "delays"), NOW_US)
    assert chain is not None
    assert chain["because"] == ["topic legs: it does not exist"]
    assert chain["settled_until"] == iso(NOW_US - S)
    # With another pipe before it, the time is that of another chain.
    links = links_of({("flights", "legs"): LEGS, ("ships", "legs"): LEGS}, {"carriers": LEGS})
    chains.declare(links)
    chain = chains.state(statement("carriers", "delays"), NOW_US)
    assert chain is not None
    assert (chain["settled_until"], chain["held_by"]) == (None, "ships to legs")


def test_after_a_clock_was_set_back_nothing_of_before_is_stated() -> None:
    store, chains = chains_of_three()
    assert pass_on(store, chains, "carriers", "delays", read_offset=5)["settled_until"]
    store.take_part(0, part())
    store.take_part(0, part(set_back=1))
    chain = chains.state(statement("carriers", "delays"), NOW_US)
    assert chain is not None
    assert (chain["settled_until"], chain["because"]) == (None, ["topic legs: a clock was set back"])


def test_records_that_were_deleted_unread_hold_the_chain_for_a_week_also_after_a_restart() -> None:
    store, chains = chains_of_three(behind_s=60)
    first_chain = pass_on(store, chains, "carriers", "delays", read_offset=5)
    chain = chains.chain("carriers")
    assert not chain.note_offsets({0: 3}, {0: 5}, NOW_US)
    assert not chain.note_offsets({0: 5, 1: 9}, {0: 9, 1: 9}, NOW_US), "they were read before"
    assert chain.note_offsets({0: 12, 1: 9}, {0: 15, 1: 9}, NOW_US), "9 to 11 may not have been read"
    assert not chain.note_offsets({0: 12, 1: 9}, {0: 15, 1: 9}, NOW_US + S)
    store.take(statement("flights", "legs"))
    held_chain = pass_on(store, chains, "carriers", "delays", read_offset=5)
    assert held_chain["settled_until"] == first_chain["settled_until"]
    assert held_chain["deleted_at"] == iso(NOW_US)
    assert held_chain["because"] == ["topic legs: records were deleted, which collect may not have read"]
    restarted_chains = ChainStatements(store)
    restarted_chains.declare(chains.links)
    assert (
        pass_on(store, restarted_chains, "carriers", "delays", read_offset=5)["settled_until"]
        == first_chain["settled_until"]
    )
    new_statement = statement("carriers", "delays")
    after_week = restarted_chains.state(new_statement, NOW_US + 8 * 24 * 3600 * S)
    assert after_week is not None
    assert (after_week["settled_until"], after_week["because"]) == (iso(NOW_US - S), [])


def test_a_pipe_that_collect_reads_behind_what_kafka_has_is_held() -> None:
    chain = Chain(LEGS, [])
    assert chain.note_offsets({0: 12}, {0: 10}, NOW_US)
    assert not Chain(LEGS, []).note_offsets({0: 12}, {}, NOW_US), "nothing was committed yet"
    chain = Chain(LEGS, [])
    assert not chain.note_offsets({0: 0}, {0: 11}, NOW_US)
    chain.take(ChainReading(NOW_US, {0: 12}, {0: 12}, NOW_US))
    assert not chain.note_offsets({0: 12}, {0: 11}, NOW_US), "11 is a marker, as was read before"


def test_in_a_circle_nothing_is_stated() -> None:
    store = WatermarkStore("this")
    chains = ChainStatements(store)
    chains.declare(links_of({("a", "b"): LEGS}, {"a": LEGS}))
    chain = pass_on(store, chains, "a", "b", read_offset=5)
    assert (chain["settled_until"], chain["because"]) == (None, ["the pipes form a circle: a, a"])


def test_marks_that_are_too_many_get_coarser() -> None:
    chain = Chain(LEGS, [])
    for second in range(1, 5_000):
        chain.take(ChainReading(second * S, {0: second}, {0: 0}, second * S))
    chain.take(ChainReading(5_000 * S, {0: 5_000}, {0: 4_999}, 5_001 * S))
    assert chain.settled_us(5_000 * S) == 0
    assert chain.settled_us(5_001 * S) == 4_999 * S
    assert microseconds(iso(chain.newest_read_us)) == 4_999 * S


def test_a_pipe_that_reads_no_pipe_any_more_has_no_chain() -> None:
    _, chains = chains_of_three()
    assert chains.known_chain("carriers") is chains.chain("carriers")
    chains.declare({})
    assert chains.known_chain("carriers") is None
