"""Compare the latest minutes of a watched field with the minutes before. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hifi.pipe.watched_field import WatchedField, watch_id
from hifi_observe.ledger.watch_counts import WatchCounts
from hifi_observe.skew.buckets import Buckets, buckets_of
from hifi_observe.skew.distance import difference

SkewState = Literal["too few events", "steady", "drifted"]
TOO_FEW: Final = "too few events"
STEADY: Final = "steady"
DRIFTED: Final = "drifted"
_REFERENCE_FACTOR: Final = 5
"""The reference needs this many times the events that half a window needs."""
_HEAVIEST: Final = 2
"""A minute counts as this many usual ones of its span at most, so that one burst does not decide alone."""
_ENDS_AT: Final = 0.7
"""Share of the threshold below which a drift ends, so that a distance close to the threshold does not flap."""


@dataclass(frozen=True, slots=True)
class SkewRules:
    """The rules of a comparison, from the settings."""

    window_minutes: int = 30
    reference_minutes: int = 1440
    least_events: int = 200
    """Events that each half of the window needs."""
    distance: float = 0.1
    """Distance from which a field has drifted."""


SkewWindow = TypedDict("SkewWindow", {"from": int, "to": int, "events": int})
"""First and last minute, and events."""


class SkewReference(TypedDict):
    """Last minute, and events."""

    to: int
    events: int


class SkewNeeds(TypedDict):
    """Events that a verdict needs."""

    half_window: int
    reference: int


class SkewBucket(TypedDict):
    """Events, and their share of all events from 0 to 1, in both."""

    label: str
    window: int
    window_share: float | None
    reference: int
    reference_share: float | None


class FieldSkewJson(TypedDict):
    """The comparison of one watched field, for the API."""

    field: str
    state: SkewState
    distance: Annotated[
        float | None,
        Field(description="Jensen-Shannon distance, less what chance explains; null: too few events."),
    ]
    window: Annotated[SkewWindow, Field(description="First and last minute, and events.")]
    reference: SkewReference
    threshold: Annotated[float, Field(description="Distance from which a field has drifted.")]
    needed: SkewNeeds
    buckets: Annotated[
        list[SkewBucket],
        Field(description="Events, and their share of all events from 0 to 1, in both."),
    ]


@dataclass(frozen=True, slots=True)
class FieldSkew:
    """The comparison of one field at one minute."""

    field: str
    state: SkewState
    """`TOO_FEW`, `STEADY` or `DRIFTED`."""
    distance: float | None
    """See `Difference.distance`; None: too few events."""
    labels: list[str]
    """Of the buckets."""
    window: list[int]
    """Events of each bucket."""
    reference: list[int]
    window_from: int
    """First minute of the window; the reference ends before it."""
    window_to: int
    rules: SkewRules

    def json(self) -> "FieldSkewJson":
        """JSON for the API: events of each bucket, and their shares of all events from 0 to 1."""
        events, reference_events = sum(self.window), sum(self.reference)
        return {
            "field": self.field,
            "state": self.state,
            "distance": None if self.distance is None else round(self.distance, 4),
            "window": {"from": self.window_from, "to": self.window_to, "events": events},
            "reference": {"to": self.window_from - 1, "events": reference_events},
            "threshold": self.rules.distance,
            "needed": {
                "half_window": self.rules.least_events,
                "reference": self.rules.least_events * _REFERENCE_FACTOR,
            },
            "buckets": [
                {
                    "label": label,
                    "window": window_events,
                    "window_share": window_events / events if events else None,
                    "reference": bucket_reference,
                    "reference_share": bucket_reference / reference_events if reference_events else None,
                }
                for label, window_events, bucket_reference in zip(
                    self.labels, self.window, self.reference, strict=True
                )
            ],
        }


class _Span:
    """The events of some minutes by bucket."""

    def __init__(self, minutes: Sequence[Counter[str]]) -> None:
        usual_limit = _HEAVIEST * median(counts.total() for counts in minutes) if minutes else 0
        self._usual: Counter[str] = Counter()
        self._heavy: list[tuple[Counter[str], float]] = []
        """Minutes with more events than count, and the weight of an event of theirs."""
        self.events: Counter[str] = Counter()
        for counts in minutes:
            self.events.update(counts)
            total = counts.total()
            if total > usual_limit:
                self._heavy.append((counts, usual_limit / total))
            else:
                self._usual.update(counts)

    def weighed(self, buckets: Buckets) -> list[float]:
        """Events of each bucket, where a minute counts as `_HEAVIEST` usual ones at most."""
        weighed_events: list[float] = [*buckets.counts(self._usual)]
        for minute, weight in self._heavy:
            weighed_events = [
                events + weight * number
                for events, number in zip(weighed_events, buckets.counts(minute), strict=True)
            ]
        return weighed_events


def compare(
    watch: Sequence[WatchedField],
    minutes: Mapping[int, WatchCounts],
    last_minute: int,
    rules: SkewRules,
    drifted: Collection[str],
) -> list[FieldSkew]:
    """Compare every watched field of a pipe.

    Both halves of the window must differ from the reference: one unusual minute is in one of them only.

    Args:
        watch: the watched fields as they are declared now; only minutes with this declaration are compared.
        minutes: closed minutes of the pipe with watched fields.
        last_minute: newest closed minute, where the window ends.
        rules: what is compared.
        drifted: the fields that had drifted one minute ago.
    """
    declared_id = watch_id(watch)
    first_minute = last_minute - rules.window_minutes + 1
    middle_minute = first_minute + rules.window_minutes // 2
    skews = []
    for position, watched_field in enumerate(watch):
        reference, early_half, late_half = (
            _span(minutes, range(*span), declared_id, position)
            for span in (
                (first_minute - rules.reference_minutes, first_minute),
                (first_minute, middle_minute),
                (middle_minute, last_minute + 1),
            )
        )
        buckets = buckets_of(watched_field, reference.events)
        halves = early_half.weighed(buckets), late_half.weighed(buckets)
        state, distance = _judge(
            reference.weighed(buckets), halves, rules, drifted=watched_field.field in drifted
        )
        skews.append(
            FieldSkew(
                watched_field.field,
                state,
                distance,
                buckets.labels,
                buckets.counts(early_half.events + late_half.events),
                buckets.counts(reference.events),
                first_minute,
                last_minute,
                rules,
            )
        )
    return skews


def _span(minutes: Mapping[int, WatchCounts], span: range, declared_id: str, position: int) -> _Span:
    totals = []
    for minute in span:
        if minute in minutes:
            counts = [
                counts
                for declaration, counts in minutes[minute].counts.items()
                if declaration.watch_id == declared_id and declaration.position == position
            ]
            # There is one, or one for each revision.
            if total := counts[0] if len(counts) == 1 else sum(counts, Counter[str]()):
                totals.append(total)
    return _Span(totals)


def _judge(
    reference: Sequence[float], halves: Sequence[Sequence[float]], rules: SkewRules, *, drifted: bool
) -> tuple[SkewState, float | None]:
    """The state and the distance."""
    has_reference = sum(reference) >= rules.least_events * _REFERENCE_FACTOR
    if not has_reference or any(sum(half) < rules.least_events for half in halves):
        return TOO_FEW, None
    distance = difference(reference, [sum(pair) for pair in zip(*halves, strict=True)]).distance
    differences = [difference(reference, half) for half in halves]
    drift_begins = all(
        half_difference.significant and half_difference.distance >= rules.distance
        for half_difference in differences
    )
    drift_lasts = drifted and distance >= rules.distance * _ENDS_AT
    return DRIFTED if drift_begins or drift_lasts else STEADY, distance
