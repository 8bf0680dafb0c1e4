"""The ids of the lost and late events of a minute, which reports list for a year. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hifi_observe.ledger.id_set import IdSet

LISTED: Final = 1000
"""Lost, and late, events of a minute that are listed; further ones are only counted."""


class EventId(NamedTuple):
    """The identity of an event that was lost or late."""

    hop: str
    """The hop at which it was lost; empty: it was late."""
    destination: str
    partition: int
    epoch: str
    sequence: int

    @property
    def identity(self) -> str:
        """Epoch and sequence as hifi writes them."""
        return f"{self.epoch}:{self.sequence}"


@dataclass(frozen=True, slots=True)
class NamedIds:
    """Lost and late events of a minute."""

    lost: tuple[EventId, ...] = ()
    late: tuple[EventId, ...] = ()
    lost_count: int = 0
    late_count: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    """Identity to `ce_id`, of those that were looked up; the pipe does not mask them."""
    looked_up: bool = False
    """Whether the names were looked up since the minute last changed."""

    @classmethod
    def of(cls, merged: Mapping[str, Any], known_names: Mapping[str, str]) -> "NamedIds":
        """The ids of a merged minute, with the names that are known from before."""
        lost_events, late_events = _ids(merged["lost_ids"]), _ids(merged["late_ids"])
        listed_ids = {event.identity for event in (*lost_events, *late_events)}
        kept_names = {identity: name for identity, name in known_names.items() if identity in listed_ids}
        return cls(
            lost_events,
            late_events,
            merged["lost"],
            merged["late"],
            kept_names,
            listed_ids <= kept_names.keys(),
        )

    @classmethod
    def load(cls, dump: Mapping[str, Any]) -> "NamedIds":
        """Restore what `dump` returned."""
        return cls(
            tuple(EventId(*row) for row in dump["lost"]),
            tuple(EventId(*row) for row in dump["late"]),
            dump["lost_count"],
            dump["late_count"],
            dump["names"],
            dump["looked_up"],
        )

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes`."""
        return {
            "lost": [list(event) for event in self.lost],
            "late": [list(event) for event in self.late],
            "lost_count": self.lost_count,
            "late_count": self.late_count,
            "names": dict(self.names),
            "looked_up": self.looked_up,
        }

    def __bool__(self) -> bool:
        return bool(self.lost_count or self.late_count)


def _ids(groups: list[Mapping[str, Any]]) -> tuple[EventId, ...]:
    return tuple(event for event, _ in zip(_events(groups), range(LISTED), strict=False))


def _events(groups: list[Mapping[str, Any]]) -> Iterator[EventId]:
    ordered_groups = sorted(
        groups, key=lambda group: (group["partition"], group.get("hop", ""), group.get("destination", ""))
    )
    for group in ordered_groups:
        for epoch, sequence in IdSet.load(group["ids"]):
            yield EventId(
                group.get("hop", ""), group.get("destination", ""), group["partition"], epoch, sequence
            )
