"""Which faults meet which kinds in a set of runs. Pure."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

SOURCES: Final = ("http", "kafka", "debezium", "sql", "objects")
DESTINATIONS: Final = ("http", "kafka", "append", "upsert", "objects", "lake", "lake-upsert")
Layout: TypeAlias = dict[str, tuple[str, ...]]
"""Kind of source to the kinds of destinations of its pipe."""


def layout(
    sources: Sequence[str], destinations: Sequence[str], count: int, random_source: random.Random
) -> Layout:
    """Pipes, one for each source, in which each destination is used about as often as any other."""
    use_counts: Counter[str] = Counter()
    pipes: Layout = {}
    for source in random_source.sample(sources, len(sources)):
        shuffled = random_source.sample(destinations, len(destinations))
        chosen = sorted(shuffled, key=lambda name: use_counts[name])[:count]
        use_counts.update(chosen)
        pipes[source] = tuple(name for name in destinations if name in chosen)
    return {source: pipes[source] for source in sources}


def fault_order(faults: Sequence[str], times: int, random_source: random.Random) -> list[str]:
    """Each fault `times` times, in random rounds of all faults."""
    return [name for _ in range(times) for name in random_source.sample(faults, len(faults))]


def kinds_of(pipes: Mapping[str, Sequence[str]]) -> list[str]:
    """The kinds of a run, as `from SOURCE` and `to DESTINATION`."""
    used_kinds = {name for names in pipes.values() for name in names}
    return [f"from {source}" for source in pipes] + [
        f"to {name}" for name in DESTINATIONS if name in used_kinds
    ]


def possible(
    faults: Sequence[str], needed_kinds: Mapping[str, Collection[str]], kinds: Sequence[str]
) -> list[str]:
    """The faults that meet a kind of the run."""
    return [
        name for name in faults if not needed_kinds.get(name) or not set(kinds).isdisjoint(needed_kinds[name])
    ]


def pairs(
    injected: Sequence[str], needed_kinds: Mapping[str, Collection[str]], kinds: Sequence[str]
) -> Counter[tuple[str, str]]:
    """(Kind, fault) to how often the fault met the kind: all kinds of a run have events at any time."""
    return Counter(
        (kind, fault)
        for fault in injected
        for kind in kinds
        if fault not in needed_kinds or kind in needed_kinds[fault]
    )
