"""The verdict on each scope as it changes: a scope is stable again only after it had no reasons for a while. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from hifi.control.verdict import Condition, Verdict
from hifi.runtime.clock import MICROSECONDS
from hifi_observe.verdicts.judgement import Reasons


@dataclass(slots=True)
class _TrackedVerdict:
    verdict: Verdict
    last_bad_us: int | None = None
    """When it last had reasons; None: never seen unstable."""
    last_reasons: tuple[str, ...] = ()


class VerdictTracker:
    """Keeps the verdicts on all scopes.

    Args:
        settle_s: time without reasons after which an unstable scope is stable again, seconds.
    """

    def __init__(self, settle_s: float) -> None:
        self._settle_us = round(settle_s * MICROSECONDS)
        self._tracked: dict[str, _TrackedVerdict] = {}

    @property
    def verdicts(self) -> list[Verdict]:
        """The newest verdict on every scope, by scope."""
        return [self._tracked[scope].verdict for scope in sorted(self._tracked)]

    def step(self, scopes: Iterable[str], judgement: Reasons, now_us: int) -> list[Verdict]:
        """Update the verdicts on these scopes, and forget others.

        Args:
            scopes: every scope that exists now.
            judgement: of now.
            now_us: microseconds since 1970 UTC.
        """
        self._tracked = {scope: self._updated(scope, judgement, now_us) for scope in scopes}
        return self.verdicts

    def _updated(self, scope: str, judgement: Reasons, now_us: int) -> _TrackedVerdict:
        tracked = self._tracked.get(scope)
        last_bad_us = tracked.last_bad_us if tracked else None
        last_reasons = tracked.last_reasons if tracked else ()
        reasons = judgement.by_scope.get(scope, ())
        reported_reasons: tuple[str, ...]
        if judgement.unknown:
            condition, reported_reasons = Condition.UNKNOWN, (judgement.unknown,)
        elif reasons:
            condition, reported_reasons, last_bad_us, last_reasons = (
                Condition.UNSTABLE,
                reasons,
                now_us,
                reasons,
            )
        elif last_bad_us is not None and now_us - last_bad_us < self._settle_us:
            ago_s = (now_us - last_bad_us) / MICROSECONDS
            condition = Condition.UNSTABLE
            reported_reasons = tuple(f"{text} ({ago_s:.0f} s ago)" for text in last_reasons)
        else:
            condition, reported_reasons, last_bad_us = Condition.STABLE, (), None
        since_us = tracked.verdict.since_us if tracked and tracked.verdict.condition is condition else now_us
        return _TrackedVerdict(
            Verdict(scope, condition, since_us, now_us, reported_reasons), last_bad_us, last_reasons
        )
