"""Availability reports of a month, signed."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import orjson

from hifi.delivery.colours import NAMES
from hifi.runtime.clock import now_us
from hifi.runtime.health import version
from hifi.runtime.http.problem import Problem
from hifi.runtime.signed_document import SigningKey, envelope
from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.day_record import DayRecord
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import NamedIds
from hifi_observe.pipes import ObservedPipes
from hifi_observe.reports.month import Month, month_of
from hifi_observe.reports.pipe_month import first_kept, numbers_of, pipe_month, recorded_range
from hifi_observe.reports.report import NAME, ReportedPipe, ReportHead, ReportJson, SloJson, report
from hifi_observe.settings import ObserveSettings


class ReportAnswers:
    """Answers about months.

    Args:
        settings: of the service.
        store: has the days.
        pipes: as declared.
        partitions: of the stream.
        history: of both colours.
        key: signs the reports; None: they are not signed.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        store: MinuteStore,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        history: ColoursHistory,
        key: SigningKey | None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pipes = pipes
        self._partitions = partitions
        self._history = history
        self._key = key

    @property
    def public_key(self) -> str | None:
        """With which signatures are checked, as base64; None: reports are not signed."""
        return self._key.public_key if self._key is not None else None

    def signed(self, answer: ReportJson) -> bytes:
        """A report with its signature, as canonical JSON."""
        return envelope(NAME, answer, self._key)

    def signature(self, content: bytes) -> str | None:
        """The signature of other bytes; None: reports are not signed."""
        return self._key.sign(content) if self._key is not None else None

    def report(self, month: str, pipe: str, owner: str, may_see: Callable[[str], bool]) -> ReportJson:
        """The report of a month on a pipe, the pipes of an owner, or all pipes that somebody sees.

        Args:
            month: such as `2026-10`.
            pipe: its name; empty: other than one pipe.
            owner: e-mail address or webhook of an owner, or the host of the webhook; empty: whatever the owner.
            may_see: whether somebody may see a pipe.

        Raises:
            Problem: 400, there is no such month, or both are given; 403, the pipe may not be seen; 404, there is no
                such pipe or owner.
        """
        if pipe and owner:
            raise Problem(400, "Give a pipe or an owner, not both.", title="Invalid parameter")
        try:
            reported_month = month_of(month, now_us() // 60_000_000)
        except ValueError as error:
            raise Problem(400, f"{error}.", title="Invalid month") from None
        pipe_names = self._names(pipe, owner, may_see, reported_month)
        head = ReportHead(
            self._settings.stream,
            NAMES if self._settings.colours else tuple(filter(None, [self._settings.colour])),
            datetime.fromtimestamp(now_us() // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            f"hifi-observe {version('observe')}",
            pipe or None,
            owner or None,
            self._settings.observe_target,
        )
        return report(head, reported_month, (self._pipe(name, reported_month, owner) for name in pipe_names))

    def _names(self, pipe: str, owner: str, may_see: Callable[[str], bool], month: Month) -> list[str]:
        if pipe:
            if not may_see(pipe):
                raise Problem(403, f"Your role does not cover the pipe {pipe}.", title="Not allowed")
            if not self._pipes.exists(pipe):
                raise Problem(
                    404, f"There is no pipe {pipe!r}; /api/v1/pipes lists them.", title="No such pipe"
                )
            return [pipe]
        stored_days = (*self._store.days.items(), *self._store.colours_days.items())
        recorded_names = {name for name, days in stored_days if days}
        pipe_names = sorted(
            name
            for name in {*self._pipes.names(), *recorded_names}
            if may_see(name) and self._existed(name, month)
        )
        if not owner:
            return pipe_names
        pipe_names = [
            name for name in pipe_names if any(owner in owners for owners in self._owners(name, month))
        ]
        if not pipe_names:
            text = f"No pipe names the owner {owner!r}, or did so in {month.name}."
            raise Problem(404, text, title="No such owner")
        return pipe_names

    def _days(self, name: str) -> tuple[Mapping[int, DayRecord], int]:
        """The days of a pipe, over both colours if there are any, and the newest minute that was closed."""
        if not self._settings.colours:
            return self._store.days.get(name, {}), self._store.closed_minute(self._partitions.count)
        days = {number: day.record() for number, day in self._history.days(name).items()}
        recorded_minutes = recorded_range(days)
        return days, recorded_minutes[1] if recorded_minutes is not None else -1

    def _existed(self, name: str, month: Month) -> bool:
        """Whether a pipe existed in a month, as far as it is known."""
        days, closed_minute = self._days(name)
        recorded_minutes = recorded_range(days)
        if self._pipes.get(name) is None:
            return (
                recorded_minutes is not None
                and recorded_minutes[0] < month.passed_end
                and recorded_minutes[1] >= month.first
            )
        if recorded_minutes is None:
            return self._pipes.first_minute(name) < month.passed_end
        # Days before the first one that is kept may have been deleted.
        return recorded_minutes[0] < max(month.passed_end, first_kept(closed_minute) + DAY_MINUTES)

    def _owners(self, name: str, month: Month) -> list[tuple[str, ...]]:
        """The names of the owners of a pipe in a month, the last owner last."""
        current_names, days = self._pipes.owner_names(name), self._store.days.get(name, {})
        owners = []
        for number in numbers_of(month):
            if number in days:
                day_owners = days[number].owners
                owners.append(day_owners if day_owners is not None else current_names or ())
        if current_names is not None and (month.partial or not owners):
            owners.append(current_names)
        return owners

    def _pipe(self, name: str, month: Month, owner: str) -> ReportedPipe:
        days, closed_minute = self._days(name)
        month_record = pipe_month(days, month, closed_minute)
        if self._settings.colours:
            ids = [(minute, NamedIds.load(ids_json)) for minute, _, ids_json in self._history.ids(name)]
        else:
            ids = [
                (minute, NamedIds.load(orjson.loads(ids_json)))
                for minute, ids_json in sorted(self._store.ids.get(name, {}).items())
            ]
        owners = [names for names in self._owners(name, month) if not owner or owner in names]
        return ReportedPipe(
            name,
            next(iter(owners[-1]), None) if owners else None,
            self._slo(name),
            month_record,
            [row for row in ids if month.first <= row[0] < month.passed_end],
            self._pipes.hides_id(name),
            self._pipes.why_hidden(name),
        )

    def _slo(self, name: str) -> SloJson | None:
        pipe = self._pipes.get(name)
        return {"p95_s": f"{pipe.slo.p95:g}", "loss": pipe.slo.loss} if pipe is not None else None
