"""Alarms and their silences: one state machine for each condition. Pure: the caller supplies the time.

An alarm starts when its condition has held for `after_s` and ends when it has not held for `clear_s`, so a condition
that comes and goes makes one alarm, not many. While a silence (for a planned change) covers an alarm, nothing about it
is notified, also not its end; if the condition outlasts the silence, its start is notified then, also if it was before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from hifi_observe.alarms import runbooks

UNREADABLE_RECORD: Final = "unreadable-record"


@dataclass(frozen=True, slots=True)
class AlarmKind:
    """A kind of alarm."""

    name: str
    summary: str
    after_s: float
    clear_s: float


KINDS: Final = {
    kind.name: kind
    for kind in (
        AlarmKind("loss", "A minute lost more events than its pipe allows.", 0, 300),
        AlarmKind("step-loss", "A step lost events that it read, or counted some twice.", 0, 300),
        AlarmKind("lag", "The p95 lag from accepted to delivered is over the pipe's SLO.", 30, 120),
        AlarmKind("availability", "A minute was down.", 0, 300),
        AlarmKind("dead-letters", "There are new dead letters.", 0, 240),
        AlarmKind("destination", "A destination keeps failing with the same answer.", 0, 120),
        AlarmKind("parked", "The deliveries of a destination are parked.", 0, 0),
        AlarmKind("credentials", "A destination refuses the credentials of its pipe.", 0, 120),
        AlarmKind("endpoint-moved", "A destination is no longer at its address.", 60, 120),
        AlarmKind("events-refused", "Events of a sender do not match what their pipe expects.", 5, 60),
        AlarmKind("skew", "The distribution of a watched field has drifted.", 0, 600),
        AlarmKind("no-progress", "A service commits nothing although records are waiting.", 60, 60),
        AlarmKind("ingest-silent", "Ingest writes no ack reports.", 5, 30),
        AlarmKind("traffic", "Traffic is close to the scale rating.", 60, 300),
        AlarmKind("observe-behind", "Observe is behind: the figures it shows are old.", 15, 30),
        AlarmKind("source-deleted", "Records of a source were deleted before they were read.", 0, 3600),
        AlarmKind("source-held", "A source keeps more for hifi than it should.", 60, 120),
        AlarmKind(
            "source-rows", "Rows of a source were removed at once, or its rows may be incomplete.", 0, 120
        ),
        AlarmKind("lookup", "A lookup table is empty, or keeps an old copy.", 5, 30),
        AlarmKind("certificate", "A certificate of a service or broker expires soon.", 0, 60),
        AlarmKind(
            UNREADABLE_RECORD, "A control record cannot be read; services skip it, or hold its pipe.", 0, 0
        ),
        AlarmKind("offsets-lost", "Kafka deleted records before observe read them.", 0, 3600),
    )
}
OwnerChannel = Literal["webhook", "email"]
"""A channel by which the owner of a pipe is notified."""
ACTION_PREFIX: Final = "action/"
"""Of the ids of silences that actions of the control plane make."""
Key = tuple[str, str, str]
"""Kind, pipe (or empty), subject (a destination, a group, or empty)."""


class AlarmJson(TypedDict):
    """An alarm as JSON."""

    id: str
    kind: Annotated[str, Field(json_schema_extra={"enum": [*KINDS]})]
    pipe: str
    subject: str
    cause: str
    started_us: int
    ended_us: int | None
    silenced: str | None
    summary: str
    runbook: Annotated[
        str,
        Field(
            description="Path of the runbook in the console, at the address of this API.",
            json_schema_extra={"format": "uri-reference"},
        ),
    ]
    told: NotRequired[
        Annotated[
            list[OwnerChannel], Field(description="The channels by which the owner of the pipe was notified.")
        ]
    ]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm from its start to its end. Times in microseconds since 1970 UTC."""

    id: str
    kind: str
    pipe: str
    subject: str
    cause: str
    started_us: int
    ended_us: int | None = None
    silenced: str | None = None
    """Reason of the silence that covers it."""

    def json(self) -> AlarmJson:
        """JSON for the topic, the webhook and the API."""
        return {
            "id": self.id,
            "kind": self.kind,
            "pipe": self.pipe,
            "subject": self.subject,
            "cause": self.cause,
            "started_us": self.started_us,
            "ended_us": self.ended_us,
            "silenced": self.silenced,
            "summary": KINDS[self.kind].summary,
            "runbook": runbooks.link(self.kind),
        }


@dataclass(frozen=True, slots=True)
class AlarmSilence:
    """A planned change: alarms of a kind, a pipe and a subject (empty: any) are not notified for a time."""

    id: str
    reason: str
    from_us: int
    until_us: int
    kind: str = ""
    pipe: str = ""
    subject: str = ""

    def covers(self, key: Key, now_us: int) -> bool:
        """Whether it applies to an alarm now."""
        filters = zip((self.kind, self.pipe, self.subject), key, strict=True)
        return self.from_us <= now_us < self.until_us and all(
            filter_text in ("", alarm_text) for filter_text, alarm_text in filters
        )

    @property
    def of_action(self) -> bool:
        """Whether an action of the control plane made it, rather than a person."""
        return self.id.startswith(ACTION_PREFIX)


@dataclass(slots=True)
class _Watch:
    since_us: int | None = None
    """Since when the condition holds; None: it does not."""
    absent_us: int | None = None
    """Since when the condition no longer holds."""
    alarm: Alarm | None = None


class Alarms:
    """The state machines of all conditions, and the silences."""

    def __init__(self) -> None:
        self._watches: dict[Key, _Watch] = {}
        self.silences: dict[str, AlarmSilence] = {}

    @property
    def active(self) -> list[Alarm]:
        """Alarms that have not ended, oldest first."""
        return sorted(
            (watch.alarm for watch in self._watches.values() if watch.alarm),
            key=lambda alarm: alarm.started_us,
        )

    def restore(self, alarms: Iterable[Alarm]) -> None:
        """Continue the active alarms of another instance, or of one before a restart, and forget all others."""
        self._watches = {
            (alarm.kind, alarm.pipe, alarm.subject): _Watch(since_us=alarm.started_us, alarm=alarm)
            for alarm in alarms
            if alarm.kind in KINDS
        }

    def step(
        self, holding: Mapping[Key, str], now_us: int, judged_keys: Iterable[Key] | None = None
    ) -> list[Alarm]:
        """Update all alarms from the conditions.

        Args:
            holding: conditions that hold now, each with its cause.
            now_us: microseconds since 1970 UTC.
            judged_keys: keys that were checked; None: all. Alarms of unchecked keys stay as they are.

        Returns:
            Alarms that changed: started, ended, silenced, or no longer silenced.
        """
        changed_alarms = []
        checked_keys = None if judged_keys is None else {*judged_keys, *holding}
        for key in sorted({*holding, *self._watches}):
            if checked_keys is not None and key not in checked_keys:
                continue
            watch = self._watches.setdefault(key, _Watch())
            alarm = self._advance(key, watch, holding.get(key), now_us)
            if alarm is not None:
                changed_alarms.append(alarm)
            if watch.since_us is None and watch.alarm is None:
                del self._watches[key]
        return changed_alarms

    def _advance(self, key: Key, watch: _Watch, cause: str | None, now_us: int) -> Alarm | None:
        kind, silenced = KINDS[key[0]], self._silenced(key, watch.alarm, now_us)
        if cause is None:
            return _clear(kind, watch, silenced, now_us)
        watch.absent_us = None
        watch.since_us = watch.since_us if watch.since_us is not None else now_us
        if watch.alarm is None:
            if now_us - watch.since_us < kind.after_s * 1_000_000:
                return None
            identity = "/".join([*key, str(watch.since_us)])
            watch.alarm = Alarm(identity, *key, cause, watch.since_us, silenced=silenced)
            return watch.alarm
        if (watch.alarm.silenced is None) == (silenced is None):
            return None
        watch.alarm = replace(watch.alarm, cause=cause, silenced=silenced)
        return watch.alarm

    def _silenced(self, key: Key, alarm: Alarm | None, now_us: int) -> str | None:
        """Reason of a silence that applies now; None: none does.

        An action of the control plane explains alarms that start while it runs, and none that was notified before.
        """
        is_notified = alarm is not None and alarm.silenced is None
        return next(
            (
                silence.reason
                for silence in self.silences.values()
                if silence.covers(key, now_us) and not (is_notified and silence.of_action)
            ),
            None,
        )


def _clear(kind: AlarmKind, watch: _Watch, silenced: str | None, now_us: int) -> Alarm | None:
    """Handle a condition that does not hold; returns the alarm if it ended or a silence of it began.

    The end of a silence changes nothing: nobody has to be notified of a start that is over.
    """
    watch.absent_us = watch.absent_us if watch.absent_us is not None else now_us
    if watch.alarm is None:
        watch.since_us = None
        return None
    begins_silence = watch.alarm.silenced is None and silenced is not None
    if begins_silence:
        watch.alarm = replace(watch.alarm, silenced=silenced)
    if now_us - watch.absent_us < kind.clear_s * 1_000_000:
        return watch.alarm if begins_silence else None
    ended_alarm = replace(watch.alarm, ended_us=watch.absent_us)
    watch.alarm = watch.since_us = None
    return ended_alarm
