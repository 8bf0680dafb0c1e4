"""The comparison of a run sees an event that is lost, twice, changed or unknown; the plan uses every kind and fault."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.connectors.comparison import Difference, compare_events, compare_rows, without_repeated
from tests.chaos.connectors.events import KEYS, as_data, event, newest
from tests.chaos.connectors.faults import CLOCKED, DOUBLED, FAULTS, LEFT_OUT, NEEDS
from tests.chaos.connectors.plan import (
    DESTINATIONS,
    SOURCES,
    fault_order,
    kinds_of,
    layout,
    pairs,
    possible,
)
from tests.chaos.fault_tools import prepared_tools
from tests.chaos.faults import FAULTS as FAULTS_OF_MESH

from hifi_infra.kafka import cluster
from hifi_infra.kafka.kraft import Ports, server_properties

SENT = [event("kafka", n) for n in range(3 * KEYS)]
ROWS = [as_data(sent) for sent in SENT]
NEWEST = [as_data(sent) for sent in newest(SENT).values()]


def changed(rows: list[dict[str, Any]], index: int, **fields: Any) -> list[dict[str, Any]]:
    return [row | (fields if number == index else {}) for number, row in enumerate(rows)]


def defects(difference: Difference) -> dict[str, list[str]]:
    return {
        name: ids for name in ("lost", "twice", "different", "unknown") if (ids := getattr(difference, name))
    }


@pytest.mark.parametrize("seed", range(20))
def test_each_defect_of_a_destination_with_every_event_is_named(seed: int) -> None:
    index = random.Random(seed).randrange(len(ROWS))
    name = ROWS[index]["id"]
    assert defects(compare_events(SENT, random.Random(seed).sample(ROWS, len(ROWS)))) == {}
    assert defects(compare_events(SENT, ROWS[:index] + ROWS[index + 1 :])) == {"lost": [name]}
    assert defects(compare_events(SENT, [*ROWS, ROWS[index]])) == {"twice": [name]}
    assert defects(compare_events(SENT, [*ROWS, ROWS[index] | {"id": "kafka-9999"}])) == {
        "unknown": ["kafka-9999"]
    }
    for fields in (
        {"amount": str(float(ROWS[index]["amount"]) + 1)},
        {"text": None},
        {"n": -1},
        {"key": "k99"},
    ):
        assert defects(compare_events(SENT, changed(ROWS, index, **fields))) == {"different": [name]}


@pytest.mark.parametrize("seed", range(20))
def test_each_defect_of_a_destination_with_the_newest_event_of_a_key_is_named(seed: int) -> None:
    index = random.Random(seed).randrange(len(NEWEST))
    row = NEWEST[index]
    older = next(event for event in SENT if event.key == row["key"])
    assert defects(compare_rows(SENT, NEWEST)) == {}
    assert defects(compare_rows(SENT, NEWEST[:index] + NEWEST[index + 1 :])) == {"lost": [row["id"]]}
    assert defects(compare_rows(SENT, [*NEWEST, row])) == {"twice": [row["key"]]}
    assert defects(compare_rows(SENT, changed(NEWEST, index, **as_data(older)))) == {"different": [row["id"]]}
    assert defects(compare_rows(SENT, changed(NEWEST, index, text="other"))) == {"different": [row["id"]]}


def test_only_repetitions_with_a_reason_are_left_out() -> None:
    difference = compare_events(SENT, [*ROWS, ROWS[0], ROWS[1]])
    assert without_repeated(difference, {ROWS[0]["id"]}).twice == [ROWS[1]["id"]]


@pytest.mark.parametrize("change", [lambda row: row.pop("amount"), lambda row: row.update(amount="x")])
def test_a_row_that_is_no_event_is_different(change: Callable[[dict[str, Any]], Any]) -> None:
    rows = [dict(row) for row in ROWS]
    change(rows[3])
    assert defects(compare_events(SENT, rows)) == {"different": [ROWS[3]["id"]]}


@pytest.mark.parametrize("seed", range(20))
def test_each_pair_of_kind_and_fault_is_met_twice_where_each_fault_comes_twice(seed: int) -> None:
    pipes = layout(SOURCES, DESTINATIONS, 3, random.Random(seed))
    use_counts = Counter(name for names in pipes.values() for name in names)
    assert use_counts.keys() == set(DESTINATIONS)
    assert min(use_counts.values()) >= 2
    assert all(len(set(names)) == 3 for names in pipes.values())
    kinds = kinds_of(pipes)
    assert len(kinds) == len(SOURCES) + len(DESTINATIONS)
    order = fault_order(possible(FAULTS, NEEDS, kinds), 2, random.Random(seed))
    counts = pairs(order, NEEDS, kinds)
    assert {kind for kind, _ in counts} == set(kinds)
    assert {fault for _, fault in counts} == set(FAULTS)
    assert set(counts.values()) == {2}
    assert all(("to append", fault) in counts for fault in FAULTS if fault not in NEEDS)


def test_a_selection_has_only_faults_that_meet_it() -> None:
    pipes = layout(["http"], ["objects"], 1, random.Random(0))
    faults = possible(FAULTS, NEEDS, kinds_of(pipes))
    assert {"fail_s3", "kill_s3", "kill_egest", "kill_all_brokers"} <= set(faults)
    assert {"kill_connect", "registry_away", "kill_lake", "lock_tables"}.isdisjoint(faults)


def test_each_fault_of_a_mesh_is_used_or_left_out_for_a_reason() -> None:
    assert set(FAULTS) & set(FAULTS_OF_MESH) == set(FAULTS_OF_MESH) - set(LEFT_OUT)
    assert set(LEFT_OUT) <= set(FAULTS_OF_MESH)
    notes = (Path(__file__).parents[3] / "bench" / "notes" / "chaos.md").read_text("utf-8")
    section = notes.partition("## make chaos-connectors")[2].partition("\n## ")[0]
    assert [name for name in LEFT_OUT if f"`{name}`" not in section] == []


def test_faults_that_need_tools_have_them_in_the_mesh_of_the_run(tmp_path: Path) -> None:
    """Brokers of another cluster of the run have no proxy in front of them."""
    kafka = tmp_path / "mesh-1" / "kafka"
    with prepared_tools(tmp_path, kafka, 1, ["cut", "step_clock"], DOUBLED, CLOCKED) as tools:
        assert tools.own_env.keys() == {f"{name}-2" for name in DOUBLED} | {f"{name}-1" for name in CLOCKED}
        ports = [Ports(1, 2)]
        of_mesh, of_other = (
            vars(cluster)["server_properties"](1, ports, str(folder / "1" / "log"))
            for folder in (kafka, tmp_path / "outside-kafka")
        )
        assert all(f"{name.upper()}://" in of_mesh for name in DOUBLED)
        assert of_other == server_properties(1, ports, str(tmp_path / "outside-kafka" / "1" / "log"))
    assert vars(cluster)["server_properties"] is server_properties
