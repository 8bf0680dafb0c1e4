"""Limit the events and bytes per second of each pipe and write key, over all processes of ingest. Pure.

Each process enforces its share of a quota, in proportion to the demand of its senders. Every second it reports that
demand, and adjusts its shares by the reports of the other processes. docs/decisions/quotas.md has the reasons.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hifi.pipe.secret import Quota
from hifi.runtime.http.problem import Problem
from hifi_ingest.admission.demand import Demand
from hifi_ingest.bodies import QuotaSubject, QuotaUnit, RefusalMembers

_OWNERS: Final[Mapping[QuotaSubject, str]] = {
    "pipe": "this pipe",
    "key": "this write key",
    "new pipe": "this new pipe, which rises while the pipe is stable,",
}
_LEAST_SHARE: Final = 0.1
"""Part of an equal share that a process may always accept, until its own demand is known."""
_BURST_S: Final = 1.0
_SILENT_S: Final = 5.0
"""Time without a report after which a process counts as ended, seconds."""
_UNUSED_S: Final = 60.0


class KeyQuota(NamedTuple):
    """The quota of a write key in one pipe."""

    name: str
    """Of the key; not a secret."""
    quota: Quota


class QuotaLimit:
    """A quota in one unit. The bucket may be overdrawn by a request; later ones then wait longer."""

    __slots__ = ("_filled_s", "_level", "_share_per_s", "demand", "limit_per_s", "subject", "unit", "used_s")

    def __init__(self, subject: QuotaSubject, unit: QuotaUnit, limit_per_s: float, now_s: float) -> None:
        """A full bucket with the whole limit as this process' share.

        Args:
            subject: that the quota belongs to.
            unit: of the limit.
            limit_per_s: of all processes together.
            now_s: monotonic, seconds.
        """
        self.subject: Final = subject
        self.unit: Final = unit
        self.limit_per_s: Final = limit_per_s
        self.demand: Final = Demand()
        self.used_s = now_s
        self._share_per_s = limit_per_s
        self._level = max(1.0, limit_per_s * _BURST_S)
        self._filled_s = now_s

    def set_share(self, now_s: float, other_demand_per_s: float, processes: int) -> None:
        """Adjust this process' share.

        While all demand fits, the share is the limit without the demand of the other processes. Otherwise it is in
        proportion to the demand.

        Args:
            now_s: monotonic, seconds.
            other_demand_per_s: demand at the other processes.
            processes: number of processes, with this one.
        """
        self._fill(now_s)
        own_demand_per_s = self.demand.per_s
        total_demand_per_s = own_demand_per_s + other_demand_per_s
        limit_per_s = self.limit_per_s
        proportional_per_s = (
            limit_per_s * own_demand_per_s / total_demand_per_s if total_demand_per_s else limit_per_s
        )
        self._share_per_s = max(
            proportional_per_s, limit_per_s - other_demand_per_s, limit_per_s / processes * _LEAST_SHARE
        )

    def wait_s(self, now_s: float) -> float:
        """Seconds until something is accepted; 0: now."""
        self._fill(now_s)
        return max(0.0, -self._level / self._share_per_s)

    def take(self, amount: float) -> None:
        """Take from the bucket."""
        self._level -= amount

    def _fill(self, now_s: float) -> None:
        burst_amount = max(1.0, self._share_per_s * _BURST_S)
        self._level = min(burst_amount, self._level + (now_s - self._filled_s) * self._share_per_s)
        self._filled_s = now_s


class QuotaExceeded(Problem):
    """429 that names the quota, with Retry-After.

    Attributes:
        pipe: name.
        limit: that is used up.
    """

    def __init__(self, pipe: str, limit: QuotaLimit, wait_s: float) -> None:
        owner = _OWNERS[limit.subject]
        members: RefusalMembers = {
            "quota": {"of": limit.subject, "unit": limit.unit, "per_second": limit.limit_per_s}
        }
        super().__init__(
            429,
            f"the quota of {owner} is {limit.limit_per_s:.15g} {limit.unit} per second; no event was accepted, send"
            " the request again later",
            [("retry-after", str(max(1, math.ceil(wait_s))))],
            members,
        )
        self.pipe = pipe
        self.limit = limit


class Quotas:
    """The quotas of the pipes and keys that senders used in the last minute."""

    def __init__(self, default_events_per_s: float = 0) -> None:
        """Nothing was offered yet.

        Args:
            default_events_per_s: of pipes that declare no quota; 0: no limit.
        """
        self._default_quota = Quota(events=default_events_per_s) if default_events_per_s else None
        self._limits: dict[str, QuotaLimit] = {}
        self._reports: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._last_report_s = -math.inf

    @property
    def used(self) -> bool:
        """Whether senders used a quota in the last minute."""
        return bool(self._limits)

    def of(
        self,
        pipe: str,
        quota: Quota | None,
        key: KeyQuota | None,
        now_s: float,
        cap_per_s: float | None = None,
    ) -> Sequence[QuotaLimit]:
        """The limits of a request; empty: it has no quota.

        Args:
            pipe: name.
            quota: that the pipe declares.
            key: quota of the request's key.
            now_s: monotonic, seconds.
            cap_per_s: of a new pipe, events per second; None: it has none.
        """
        quota = quota or self._default_quota
        if quota is None and key is None and cap_per_s is None:
            return ()
        limits = [] if quota is None else list(self._limits_of(pipe, "pipe", quota, now_s))
        if key is not None:
            limits += self._limits_of(f"{pipe}#{key.name}", "key", key.quota, now_s)
        if cap_per_s is not None:
            limits.append(self._limit(f"{pipe}#/cap", "new pipe", "events", cap_per_s, now_s))
        return limits

    def check(self, pipe: str, limits: Sequence[QuotaLimit], now_s: float) -> None:
        """Refuse a request before it is read if a quota is used up.

        Raises:
            QuotaExceeded: 429 with Retry-After.
        """
        waits_s = [limit.wait_s(now_s) for limit in limits]
        if any(waits_s):
            for limit in limits:
                limit.demand.add_unread()
            raise _longest_refusal(pipe, limits, waits_s)

    def take(
        self, pipe: str, limits: Sequence[QuotaLimit], events: int, size_bytes: int, now_s: float
    ) -> None:
        """Take a request that was read from its quotas, or refuse it and take nothing.

        Args:
            pipe: name.
            limits: of the request.
            events: in the request.
            size_bytes: of its body, without content coding.
            now_s: monotonic, seconds.

        Raises:
            QuotaExceeded: 429 with Retry-After.
        """
        waits_s = [limit.wait_s(now_s) for limit in limits]
        is_refused = any(waits_s)
        for limit in limits:
            amount = events if limit.unit == "events" else size_bytes
            limit.demand.add(amount)
            if not is_refused:
                limit.take(amount)
        if is_refused:
            raise _longest_refusal(pipe, limits, waits_s)

    def report(self, now_s: float) -> dict[str, float]:
        """End a period: return the demand at this process, by quota, and forget quotas that nobody uses.

        Returns:
            Name of a quota to events or bytes per second, rounded.
        """
        span_s, self._last_report_s = now_s - self._last_report_s, now_s
        for name, limit in list(self._limits.items()):
            limit.demand.end_period(span_s)
            if now_s - limit.used_s > _UNUSED_S:
                del self._limits[name]
        self._set_shares(now_s)
        return {name: round(limit.demand.per_s, 1) for name, limit in self._limits.items()}

    def hear(self, process: str, demand: Mapping[str, float], now_s: float) -> None:
        """Take the report of another process."""
        self._reports[process] = now_s, demand

    def forget(self, process: str) -> None:
        """Another process has ended."""
        self._reports.pop(process, None)

    def _limits_of(
        self, name: str, subject: QuotaSubject, quota: Quota, now_s: float
    ) -> Iterator[QuotaLimit]:
        if quota.events is not None:
            yield self._limit(f"{name}/events", subject, "events", quota.events, now_s)
        if quota.bytes is not None:
            yield self._limit(f"{name}/bytes", subject, "bytes", quota.bytes, now_s)

    def _limit(
        self, name: str, subject: QuotaSubject, unit: QuotaUnit, limit_per_s: float, now_s: float
    ) -> QuotaLimit:
        limit = self._limits.get(name)
        if limit is None or limit.limit_per_s != limit_per_s:
            limit = self._limits[name] = QuotaLimit(subject, unit, limit_per_s, now_s)
            self._set_share(name, limit, now_s)
        limit.used_s = now_s
        return limit

    def _set_shares(self, now_s: float) -> None:
        for process, (reported_s, _) in list(self._reports.items()):
            if now_s - reported_s > _SILENT_S:
                del self._reports[process]
        for name, limit in self._limits.items():
            self._set_share(name, limit, now_s)

    def _set_share(self, name: str, limit: QuotaLimit, now_s: float) -> None:
        other_demand_per_s = sum(demand.get(name, 0.0) for _, demand in self._reports.values())
        limit.set_share(now_s, other_demand_per_s, len(self._reports) + 1)


def _longest_refusal(pipe: str, limits: Sequence[QuotaLimit], waits_s: Sequence[float]) -> QuotaExceeded:
    """The refusal of the quota with the longest wait."""
    wait_s = max(waits_s)
    return QuotaExceeded(pipe, limits[waits_s.index(wait_s)], wait_s)
